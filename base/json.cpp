#include "base/json.hpp"

namespace nlohmann::detail {

template class lexer<json, TextInput>;
template class parser<json, TextInput>;
template class json_sax_dom_parser<json>;
template class json_sax_dom_callback_parser<json>;
template class serializer<json>;
template class serializer<ordered_json>;

}  // namespace nlohmann::detail

template class nlohmann::basic_json<>;
template class nlohmann::basic_json<nlohmann::ordered_map>;
