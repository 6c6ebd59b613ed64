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

/// One frame's line of a segment.
struct Line {
  std::int64_t item_id = 0;
  std::string json;  ///< one JSON object without newline that begins with {"id": <item_id>
  bool ok = true;
  Reason reason = Reason::internal;  ///< only where not ok
  int objects = 0;
};

/// Where a journal holds a line, and what the books need of it without reading it again.
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

/// What a look at a journal found.
struct JournalScan {
  std::int64_t valid_end = 0;    ///< offset behind the last valid line
  std::int64_t total_bytes = 0;  ///< size of the file
  int invalid_lines = 0;         ///< torn, flipped or foreign lines, the tail included
};

/// The finished frames of one segment that is still open, a line each:
///
///     <xxh32 of the rest, 8 hex digits> <batch> <item id> <"ok" or reason> <objects> <JSON>\n
///
/// The hash is taken over a key too that stands for the segment and its plan, so a line of another plan is as invalid
/// as a torn one. Invalid lines are passed over wherever they stand; what follows the last valid line is cut off before
/// the first append. Only offsets are held in memory.
class Journal {
 public:
  /// Longest JSON of a line; without a bound, garbage without newlines would have to be read into memory.
  static constexpr std::int64_t max_line_bytes = 64 << 20;

  /// Opens or creates the file, hands its valid lines to `recovered` in file order and cuts off what follows them.
  Journal(const std::string& path, std::string key, const std::function<void(const JournalEntry&)>& recovered,
          const FileSystem& files = real_files);

  /// Appends the lines of one batch in one write and returns where they stand. Throws std::invalid_argument for JSON
  /// with a newline, too long, or of another item.
  std::vector<JournalEntry> append(int batch, std::span<const Line> lines);

  /// The JSON of an entry, checked again; StorageError with EIO if the file no longer holds it.
  std::string read(const JournalEntry& entry) const;

  /// fdatasync, if there is anything new. StorageError too when the file was deleted meanwhile.
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

/// Reads a journal that somebody else may be writing, without changing it. For who does not know the key: lines count
/// as valid by their form, without their hash.
JournalScan scan_journal(const std::string& path, const std::function<void(const JournalEntry&)>& found,
                         const FileSystem& files = real_files);

}  // namespace millrace
