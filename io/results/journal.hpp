#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/files.hpp"
#include "io/files/reason.hpp"

namespace millrace {

/// The line of one frame in a segment.
struct Line {
  std::int64_t item_id = 0;
  std::string json;  ///< one JSON object without newline that begins with {"id": <item_id>
  bool ok = true;
  Reason reason = Reason::internal;  ///< only where not ok
  int objects = 0;
};

/// The position of a line in a journal, with the facts that summaries need.
struct JournalEntry {
  int batch = 0;
  std::int64_t item_id = 0;
  bool ok = true;
  Reason reason = Reason::internal;
  int objects = 0;
  std::int64_t offset = 0;       ///< of the journal line in the file
  std::int32_t line_bytes = 0;   ///< of the journal line, without its newline
  std::int32_t json_offset = 0;  ///< of the JSON within the journal line
};

/// The result of scanning a journal.
struct JournalScan {
  std::int64_t valid_end = 0;    ///< offset after the last valid line
  std::int64_t total_bytes = 0;  ///< size of the file
  int invalid_lines = 0;         ///< torn, changed or foreign lines, including the tail
};

/// The finished frames of one open segment, one line for each:
///
///     <check, 8 hex digits> <batch> <item id> <"ok" or reason> <objects> <JSON>\n
///
/// The check is an XXH32 hash of the rest of the line and of a key. The key stands for the segment and its plan.
/// So a line of another plan is as invalid as a torn one.
/// Invalid lines are skipped anywhere in the file. What follows the last valid line is cut off when the file is opened.
/// Memory holds only offsets, no lines. Not thread-safe.
class Journal {
 public:
  /// Maximum bytes of a line's JSON. Without it, a scan would read garbage without newlines into memory.
  static constexpr std::int64_t max_line_bytes = 64 << 20;

  /// Opens or creates the file, gives its valid lines to `recovered` in file order, and cuts off what follows them.
  Journal(const std::string& path, std::string key, const std::function<void(const JournalEntry&)>& recovered,
          const FileSystem& files = real_files);

  /// Appends the lines of one batch in one write and returns where they are.
  /// Throws std::invalid_argument for JSON that has a newline, is too long, or does not begin with the item's id.
  std::vector<JournalEntry> append(int batch, std::span<const Line> lines);

  /// The JSON of an entry, checked again. Throws StorageError with EIO if the file no longer contains it.
  std::string read(const JournalEntry& entry) const;

  /// fdatasync, if the file has lines that are not synced.
  /// Throws StorageError also if the file was deleted in the meantime.
  void sync();

  const std::string& path() const { return file_.path(); }
  const JournalScan& scan() const { return scan_; }

 private:
  std::string key_;
  File file_;
  JournalScan scan_;
  std::int64_t end_ = 0;
  bool unsynced_ = false;
};

/// Reads a journal without changing it, even while another process writes it.
/// For callers that do not know the key: it checks the form of the lines, not their hash.
JournalScan scan_journal(const std::string& path, const std::function<void(const JournalEntry&)>& found,
                         const FileSystem& files = real_files);

}  // namespace millrace
