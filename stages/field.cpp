#include "stages/field.hpp"

#include "io/files/json_writer.hpp"

namespace millrace {

void Columns::write_key(JsonWriter& json, std::string_view name) { json.key(name); }

}  // namespace millrace
