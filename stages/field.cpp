#include "stages/field.hpp"

#include "io/files/json_writer.hpp"

namespace millrace {

void Columns::write_key(JsonWriter& json, std::string_view name) { json.key(name); }

void Columns::write_picture_row(const FieldBase& field, const HalfRows& rows, JsonWriter& json) {
  // Columns calls both functions for every field of rows. Only a column of objects has object keys.
  if (!field.in_side_column || !field.object_keys.empty()) return;
  if (rows.count() != 1) {
    throw std::logic_error("side column '" + std::string(field.name) +
                           "' has one row for each picture, but was given " + std::to_string(rows.count()));
  }
  // Writes the row itself as text. Its number replaces it when the segment is put together.
  write_row(field.name, rows.row(0), json.key(field.name));
}

void Columns::write_object_row(const FieldBase& field, const HalfRows& rows, std::size_t index, JsonWriter& json) {
  if (!field.in_side_column || field.object_keys.empty()) return;
  if (index >= rows.count()) {
    throw std::logic_error("side column '" + std::string(field.name) + "' has one row for each object, but was given " +
                           std::to_string(rows.count()) + " for more objects");
  }
  write_row(field.name, rows.row(index), json.key(field.name));
}

}  // namespace millrace
