#pragma once

#include <nlohmann/json.hpp>

/// nlohmann::json and nlohmann::ordered_json. Include this file instead of <nlohmann/json.hpp>.
///
/// Their parser and writer are compiled once, in json.cpp, and not in each file that uses them. Under AddressSanitizer,
/// such a file compiles in two thirds of the time.
namespace nlohmann::detail {

using TextInput = iterator_input_adapter<const char*>;

extern template class lexer<json, TextInput>;
extern template class parser<json, TextInput>;
extern template class json_sax_dom_parser<json>;
extern template class json_sax_dom_callback_parser<json>;
extern template class serializer<json>;
extern template class serializer<ordered_json>;

}  // namespace nlohmann::detail

extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
