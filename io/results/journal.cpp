#include "io/results/journal.hpp"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <utility>

namespace millrace {
namespace {

constexpr std::size_t hash_digits = 8;
/// Bytes of one read while a journal is scanned.
constexpr std::size_t chunk_bytes = 1 << 20;
/// Maximum of what precedes the JSON in a line: check, batch, id, reason and objects need at most 73 bytes.
constexpr std::size_t prefix_limit_bytes = 128;

/// Hashes the bytes of the line, then the key with that hash. So no line is copied only to put the key in front.
std::string check_of(std::string_view key, std::string_view rest) {
  const std::string both = std::string(key) + std::to_string(xxh32(rest));
  std::array<char, hash_digits + 1> text{};
  std::snprintf(text.data(), text.size(), "%08x", xxh32(both));
  return text.data();
}

/// Takes the word before the next space off `text`; false if there is no space.
bool take_word(std::string_view& text, std::string_view& word) {
  const std::size_t space = text.find(' ');
  if (space == std::string_view::npos) return false;
  word = text.substr(0, space);
  text.remove_prefix(space + 1);
  return true;
}

template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  std::string_view word;
  if (!take_word(text, word)) return false;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

/// The entry of a journal line without its newline; nothing if the line is not as it was written.
/// Without a key, only the form is checked.
std::optional<JournalEntry> parse(const std::optional<std::string>& key, std::string_view line, std::int64_t offset) {
  if (line.size() <= hash_digits || line[hash_digits] != ' ') return std::nullopt;
  std::string_view rest = line.substr(hash_digits + 1);
  if (key && check_of(*key, rest) != line.substr(0, hash_digits)) return std::nullopt;
  JournalEntry entry;
  std::string_view state;
  if (!take_number(rest, entry.batch) || !take_number(rest, entry.item_id) || !take_word(rest, state) ||
      !take_number(rest, entry.objects)) {
    return std::nullopt;
  }
  entry.ok = state == "ok";
  if (!entry.ok) {
    try {
      entry.reason = reason_from_string(state);
    } catch (const std::invalid_argument&) {
      return std::nullopt;
    }
  }
  entry.offset = offset;
  entry.line_bytes = static_cast<std::int32_t>(line.size());
  entry.json_offset = static_cast<std::int32_t>(line.size() - rest.size());
  return entry;
}

JournalScan scan_file(const File& file, const std::optional<std::string>& key,
                      const std::function<void(const JournalEntry&)>& found) {
  JournalScan scan;
  std::string held;              // bytes of the file from held_offset on that are not processed yet
  std::int64_t held_offset = 0;  // where the current line begins
  std::size_t searched = 0;      // bytes of `held` known to have no newline
  bool overlong = false;         // the current line is too long to be one of ours
  std::vector<char> chunk(chunk_bytes);
  while (const std::size_t count = file.read_at(chunk, held_offset + static_cast<std::int64_t>(held.size()))) {
    held.append(chunk.data(), count);
    std::size_t begin = 0;
    for (std::size_t end = held.find('\n', searched); end != std::string::npos; end = held.find('\n', begin)) {
      const auto line = std::string_view(held).substr(begin, end - begin);
      const std::int64_t offset = held_offset + static_cast<std::int64_t>(begin);
      const auto entry = overlong ? std::nullopt : parse(key, line, offset);
      if (entry) {
        scan.valid_end = offset + static_cast<std::int64_t>(line.size()) + 1;
        found(*entry);
      } else {
        ++scan.invalid_lines;
      }
      overlong = false;
      begin = end + 1;
    }
    held.erase(0, begin);
    held_offset += static_cast<std::int64_t>(begin);
    // Garbage without a newline must not fill the memory. What is dropped here still counts as one invalid line.
    if (held.size() > static_cast<std::size_t>(Journal::max_line_bytes) + prefix_limit_bytes) {
      held_offset += static_cast<std::int64_t>(held.size());
      held.clear();
      overlong = true;
    }
    searched = held.size();
  }
  if (overlong || !held.empty()) ++scan.invalid_lines;
  scan.total_bytes = held_offset + static_cast<std::int64_t>(held.size());
  return scan;
}

/// Throws for a line that a scan could not read back, or whose id item_id_of() (output_contents.cpp) could not find.
void check_line(const Line& line) {
  if (line.json.find('\n') != std::string::npos ||
      line.json.size() > static_cast<std::size_t>(Journal::max_line_bytes)) {
    throw std::invalid_argument("the line of item " + std::to_string(line.item_id) +
                                " contains a newline or is longer than " + std::to_string(Journal::max_line_bytes) +
                                " bytes");
  }
  const std::string id = std::to_string(line.item_id);
  const std::string_view json = line.json;
  // With and without a space after the colon, as item_id_of() accepts both.
  const bool spaced = json.starts_with("{\"id\": " + id);
  const std::size_t after = (spaced ? 7 : 6) + id.size();
  if ((!spaced && !json.starts_with("{\"id\":" + id)) || after >= json.size() ||
      (json[after] != ',' && json[after] != '}') || json.back() != '}') {
    throw std::invalid_argument("the line of item " + id + " does not begin with its id");
  }
}

}  // namespace

Journal::Journal(const std::string& path, std::string key, const std::function<void(const JournalEntry&)>& recovered,
                 const FileSystem& files)
    : key_(std::move(key)), file_(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW, files) {
  scan_ = scan_file(file_, key_, recovered);
  end_ = scan_.valid_end;
  // A new line after a torn one would continue it, and both would be invalid.
  if (scan_.total_bytes != end_) file_.truncate(end_);
  // An earlier attempt may have written these lines without a sync.
  unsynced_ = end_ > 0;
}

std::vector<JournalEntry> Journal::append(int batch, std::span<const Line> lines) {
  std::vector<JournalEntry> entries;
  std::string bytes;
  for (const Line& line : lines) {
    check_line(line);
    std::string rest = std::to_string(batch) + ' ' + std::to_string(line.item_id) + ' ';
    rest += line.ok ? std::string_view("ok") : to_string(line.reason);
    rest += ' ' + std::to_string(line.objects) + ' ';
    const std::size_t prefix = hash_digits + 1 + rest.size();
    rest += line.json;
    entries.push_back({batch, line.item_id, line.ok, line.reason, line.objects,
                       end_ + static_cast<std::int64_t>(bytes.size()),
                       static_cast<std::int32_t>(hash_digits + 1 + rest.size()), static_cast<std::int32_t>(prefix)});
    bytes += check_of(key_, rest) + ' ' + rest + '\n';
  }
  file_.write_all(bytes);
  end_ += static_cast<std::int64_t>(bytes.size());
  unsynced_ = true;
  return entries;
}

std::string Journal::read(const JournalEntry& entry) const {
  std::string line(static_cast<std::size_t>(entry.line_bytes), '\0');
  line.resize(file_.read_at(line, entry.offset));
  const auto found = parse(key_, line, entry.offset);
  if (!found || found->item_id != entry.item_id || found->json_offset != entry.json_offset) {
    throw StorageError("read back item " + std::to_string(entry.item_id) + " from", path(), EIO,
                       "the line differs from what was written. Check the disk, then run the same command again: "
                       "it computes the damaged part again");
  }
  return line.substr(static_cast<std::size_t>(entry.json_offset));
}

void Journal::sync() {
  // A deleted file can still be synced, but no later attempt would find its lines.
  if (!file_.still_linked()) throw StorageError("continue to write", path(), ENOENT, "it was deleted during the run");
  if (unsynced_) file_.sync_data();
  unsynced_ = false;
}

JournalScan scan_journal(const std::string& path, const std::function<void(const JournalEntry&)>& found,
                         const FileSystem& files) {
  return scan_file(File(path, O_RDONLY, files), std::nullopt, found);
}

}  // namespace millrace
