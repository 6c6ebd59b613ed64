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

/// Rows of float16 as bits, one after another. All have `width` numbers.
struct HalfRows {
  int width = 1;
  std::vector<std::uint16_t> values;

  std::size_t count() const { return values.size() / static_cast<std::size_t>(width); }
  std::span<const std::uint16_t> row(std::size_t index) const {
    return std::span(values).subspan(index * static_cast<std::size_t>(width), static_cast<std::size_t>(width));
  }
};

/// Whether a name can be that of a side column, and so a part of file names.
/// It has at most 64 lower-case letters, digits and '_', and begins with a letter.
/// It does not look like the name of a revision (r1).
bool is_column_name(std::string_view name);

/// Writes a row as the value of the key just written.
/// The number of the row is known only when the segment is put together. Until then the line carries the row itself:
/// <0x1f> <column> <space> <base64> <0x1f>. JSON text never contains the byte 0x1f.
/// Throws std::domain_error for a number that is not finite, std::invalid_argument for an empty row.
void write_row(std::string_view column, std::span<const std::uint16_t> row, JsonWriter& json);

/// What a manifest says about `000123.<name>.f16`.
struct SideColumn {
  std::string name;
  std::int64_t rows = 0;
  int width = 0;     ///< numbers in a row
  std::string xxh3;  ///< of the file

  std::int64_t bytes() const { return 2 * rows * width; }
};

/// Takes the rows out of the lines of one segment and writes them into its side files, one for each column with rows.
/// A side file is float16, little-endian, row after row, nothing else. Memory: one line, and a buffer for each column.
class ColumnWriter {
 public:
  /// Files of segment 123 are called `000123.<column>.f16` in `folder`.
  ColumnWriter(std::string folder, std::int64_t segment, const FileSystem& files = real_files);
  ~ColumnWriter();

  /// The line with row numbers in place of its rows.
  /// Throws std::runtime_error if the rows of a column differ in width, and StorageError.
  /// Throws std::invalid_argument for a line that write_row() did not make.
  std::string take_rows(std::string line);
  /// Makes the files durable under their names, each through AtomicFile. Call it once, after the last line.
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
