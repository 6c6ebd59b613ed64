#include "io/results/side_column.hpp"

#include <algorithm>
#include <stdexcept>

#include "io/files/base64.hpp"
#include "io/results/segments_manifest.hpp"

namespace millrace {
namespace {

constexpr char mark = '\x1f';
constexpr std::size_t longest_name = 64;
constexpr std::size_t chunk_bytes = 1 << 20;
constexpr std::uint16_t exponent_bits = 0x7c00;  // all of them set: infinity or NaN

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

bool is_column_name(std::string_view name) {
  const auto is_letter = [](char c) { return c >= 'a' && c <= 'z'; };
  if (name.empty() || name.size() > longest_name || !is_letter(name.front())) return false;
  // 000123.r1.f16 would look like a file of revision 1.
  if (name.size() > 1 && name.front() == 'r' && std::ranges::all_of(name.substr(1), is_digit)) return false;
  return std::ranges::all_of(name, [&](char c) { return is_letter(c) || is_digit(c) || c == '_'; });
}

void write_row(std::string_view column, std::span<const std::uint16_t> row, JsonWriter& json) {
  if (row.empty()) throw std::invalid_argument("a row of '" + std::string(column) + "' has no numbers");
  std::string bytes;
  bytes.reserve(2 * row.size());
  for (const std::uint16_t value : row) {
    // stages/encode.cpp makes the picture fail as non_finite.
    if ((value & exponent_bits) == exponent_bits)
      throw std::domain_error("a row of '" + std::string(column) + "' has a number that is not finite");
    bytes += static_cast<char>(value & 0xff);
    bytes += static_cast<char>(value >> 8);
  }
  json.verbatim(mark + std::string(column) + ' ' + to_base64(bytes) + mark);
}

struct ColumnWriter::Column {
  Column(const std::string& folder, const std::string& name, const FileSystem& files) : file(folder, name, files) {}

  void flush() {
    hash.add(buffer);
    file.write(buffer);
    buffer.clear();
  }

  SideColumn summary{};
  AtomicFile file;
  Xxh3 hash{};
  std::string buffer{};
};

ColumnWriter::ColumnWriter(std::string folder, std::int64_t segment, const FileSystem& files)
    : folder_(std::move(folder)), segment_(segment), files_(files) {}

ColumnWriter::~ColumnWriter() = default;

std::string ColumnWriter::take_rows(std::string line) {
  std::size_t begin = line.find(mark);
  if (begin == std::string::npos) return line;
  std::string out;
  std::size_t copied = 0;
  for (; begin != std::string::npos; begin = line.find(mark, copied)) {
    const std::size_t space = line.find(' ', begin);
    const std::size_t end = line.find(mark, begin + 1);
    if (end == std::string::npos || space > end) throw std::invalid_argument("a line has a row that does not end");
    const std::string_view text = line;
    const std::string bytes = from_base64(text.substr(space + 1, end - space - 1));
    out += text.substr(copied, begin - copied);
    out += std::to_string(append(text.substr(begin + 1, space - begin - 1), bytes));
    copied = end + 1;
  }
  return out.append(line, copied);
}

std::int64_t ColumnWriter::append(std::string_view name, std::string_view bytes) {
  auto found = columns_.find(name);
  if (found == columns_.end()) {
    if (!is_column_name(name)) throw std::invalid_argument("'" + std::string(name) + "' cannot name a side column");
    const SegmentFile file{segment_, 0, SegmentFile::Kind::column, std::string(name)};
    found = columns_.emplace(name, std::make_unique<Column>(folder_, file.name(), files_)).first;
    found->second->summary.name = name;
    // The first row of a segment sets the width.
    found->second->summary.width = static_cast<int>(bytes.size() / 2);
  }
  Column& column = *found->second;
  if (const auto width = static_cast<int>(bytes.size() / 2); width != column.summary.width) {
    throw std::runtime_error("side column '" + column.summary.name + "' has rows of " +
                             std::to_string(column.summary.width) + " and of " + std::to_string(width) +
                             " numbers in segment " + std::to_string(segment_) +
                             ", but a column has one width. Give all views models of the same width, and choose "
                             "another output folder");
  }
  column.buffer += bytes;
  if (column.buffer.size() >= chunk_bytes) column.flush();
  return column.summary.rows++;
}

std::vector<SideColumn> ColumnWriter::commit() {
  std::vector<SideColumn> all;
  for (auto& [name, column] : columns_) {
    column->flush();
    column->summary.xxh3 = column->hash.hex();
    column->file.commit();
    all.push_back(column->summary);
  }
  return all;
}

}  // namespace millrace
