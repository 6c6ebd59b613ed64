#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/files.hpp"
#include "io/files/lock.hpp"
#include "io/results/json_line.hpp"
#include "io/results/segments_manifest.hpp"

namespace millrace {

/// What an output folder contains. Reading it takes no lock and changes nothing, so it is possible during a run.
struct OutputContents {
  std::optional<std::int64_t> planned;      ///< items of the plan, if the caller knows them
  std::int64_t done_segments = 0;           ///< without those that `problems` names
  Counts counts;                            ///< of done segments, each item by its highest revision
  std::int64_t journaled_items = 0;         ///< items with a line in an open segment
  std::vector<std::int64_t> open_segments;  ///< those with a journal and no manifest
  std::optional<LockHolder> locked_by;
  /// A sentence with the remedy for each damaged manifest.
  /// Also for each data file or side column that is missing or has the wrong length.
  std::vector<std::string> problems;

  /// Whether every planned item is done and nothing is damaged: planned = ok + failed.
  /// False if `planned` is not known.
  bool balanced() const { return planned == counts.items && problems.empty(); }
};

/// Reads the contents. Throws OutputMismatchError for a manifest of another plan than `plan_hash`.
/// An empty `plan_hash` accepts any plan. Throws StorageError if the folder does not exist.
OutputContents read_contents(const std::string& out_folder, const std::string& plan_hash,
                             std::optional<std::int64_t> planned, const FileSystem& files = real_files);

/// One line of the results.
struct SegmentLine {
  std::int64_t segment = 0;
  std::int64_t item_id = 0;
  int revision = 0;       ///< its row numbers belong to the side columns of this revision
  std::string_view json;  ///< without newline; valid during the callback
};

/// Calls `take` with each line of all done segments, in plan order, until it returns false.
/// If revisions have a line of an item, the one of the highest revision replaces it.
/// Throws ResultsDamaged if a manifest is damaged, or a data file is missing or differs from its manifest in any byte.
/// `take` gets no line of such a file.
void for_each_line(const std::string& out_folder, const std::function<bool(const SegmentLine&)>& take,
                   const FileSystem& files = real_files);

/// Reads the lines of done segments, one segment at a time. So a reader can go through two outputs side by side.
class SegmentReader {
 public:
  /// Throws ResultsDamaged if a manifest is damaged, and StorageError if the folder does not exist.
  explicit SegmentReader(std::string out_folder, const FileSystem& files = real_files);

  /// The lines of the next done segment in plan order, each item by its highest revision; nothing after the last one.
  /// Throws as for_each_line().
  std::optional<std::vector<std::string>> next();

 private:
  const std::string out_folder_;
  const FileSystem& files_;
  std::vector<std::vector<Manifest>> done_;  // for each segment, its own manifest, then those of its revisions
  std::size_t next_ = 0;
};

/// Calls `take` with the lines of failed items of all done segments, in plan order. Skips segments without failures.
/// Throws as for_each_line().
void for_each_failed(const std::string& out_folder, const std::function<void(const FrameRecord&)>& take,
                     const FileSystem& files = real_files);

/// A segment file or side column that differs from its manifest.
struct DamagedSegment {
  std::int64_t segment = 0;
  int revision = 0;
  std::int64_t first_item = -1, last_item = -1;  ///< -1 if the manifest itself is damaged
  std::string problem;                           ///< a sentence that names the file and the remedy
};

/// Reads every byte of every done segment and compares it with its manifest.
std::vector<DamagedSegment> verify_segments(const std::string& out_folder, const FileSystem& files = real_files);

}  // namespace millrace
