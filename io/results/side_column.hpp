#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/files.hpp"
#include "io/files/json_writer.hpp"

namespace millrace {

/// Rows of float16, as bits, one after another; all have `width` numbers.
struct HalfRows {
  int width = 1;
  std::vector<std::uint16_t> values;

  std::size_t count() const { return values.size() / static_cast<std::size_t>(width); }
  std::span<const std::uint16_t> row(std::size_t index) const {
    return std::span(values).subspan(index * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
  }
};

/// Names of side columns stand in names of files: at most 64 lower-case letters, digits and '_', a letter first, and
/// not like a revision's (r1).
bool is_column_name(std::string_view name);

/// Writes a row as the value of the key just written. Its number is known only when the segment is put together, so the
/// line carries the row itself until then: <0x1f> <column> <space> <base64> <0x1f>. The byte 0x1f stands nowhere in
/// JSON text. Throws std::domain_error for a number that is not finite, std::invalid_argument for an empty row.
void write_row(std::string_view column, std::span<const std::uint16_t> row, JsonWriter& json);

/// What a manifest says of `000123.<name>.f16`.
struct SideColumn {
  std::string name;
  std::int64_t rows = 0;
  int width = 0;     ///< numbers a row
  std::string xxh3;  ///< of the file

  std::int64_t bytes() const { return 2 * rows * width; }
};

/// Takes rows out of the lines of one segment and puts them into its side files, one for each column that has rows:
/// float16, little-endian, row after row, nothing else. Memory is one line and a buffer a column.
class ColumnWriter {
 public:
  /// Files of segment 123 are called `000123.<column>.f16` in `folder`.
  ColumnWriter(std::string folder, std::int64_t segment, const FileSystem& files = real_files);
  ~ColumnWriter();

  /// The line with row numbers in place of its rows. Throws std::runtime_error where the rows of a column differ in
  /// width, std::invalid_argument for a line that write_row() did not make, StorageError.
  std::string take_rows(std::string line);
  /// Makes the files durable under their names, each by way of AsideFile. Once, after the last line.
  std::vector<SideColumn> commit();

 private:
  struct Column;
  std::int64_t append(std::string_view column, std::string_view bytes);

  const std::string folder_;
  const std::int64_t segment_;
  const FileSystem& files_;
  std::map<std::string, std::unique_ptr<Column>, std::less<>> columns_;
};

}  // namespace millrace
