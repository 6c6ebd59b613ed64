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

/// What an output folder holds. Reading it takes no lock and changes nothing, so it may be done while a run writes.
struct Books {
  std::optional<std::int64_t> planned;      ///< items of the plan, as far as the caller knows it
  std::int64_t done_segments = 0;           ///< without those that `problems` names
  Counts counts;                            ///< of done segments, each item by its highest revision
  std::int64_t journaled_items = 0;         ///< have a line in a segment that is still open
  std::vector<std::int64_t> open_segments;  ///< those with a journal and no manifest
  std::optional<LockHolder> locked_by;
  /// Damaged manifests, data files missing or of another length: sentences with the remedy.
  std::vector<std::string> problems;

  /// Every planned item is in exactly one state: planned = ok + failed. False if planned is not known.
  bool balanced() const { return planned == counts.items && problems.empty(); }
};

/// Reads the books. Manifests of another plan than `plan_hash` throw OutputMismatchError (an empty one stands for any).
/// Throws StorageError if the folder is not there.
Books read_books(const std::string& out_folder, const std::string& plan_hash, std::optional<std::int64_t> planned,
                 const FileSystem& files = real_files);

/// One line of the results.
struct SegmentLine {
  std::int64_t segment = 0;
  std::int64_t item_id = 0;
  int revision = 0;       ///< whose side columns its row numbers belong to
  std::string_view json;  ///< without newline; valid during the callback
};

/// All lines of all done segments in plan order, streaming. Where a revision has a line of an item, that of the highest
/// revision comes in its place. Return false to stop. Throws ResultsDamaged if a manifest is damaged, or a data file
/// missing or not, byte by byte, what its manifest says; no line of such a file is given.
void for_each_line(const std::string& out_folder, const std::function<bool(const SegmentLine&)>& take,
                   const FileSystem& files = real_files);

/// The lines of failed items of all done segments in plan order; segments without any are not read.
void for_each_failed(const std::string& out_folder, const std::function<void(const FrameRecord&)>& take,
                     const FileSystem& files = real_files);

/// A segment file or side column that is not what its manifest says.
struct DamagedSegment {
  std::int64_t segment = 0;
  int revision = 0;
  std::int64_t first_item = -1, last_item = -1;  ///< -1 where the manifest itself is damaged
  std::string problem;                           ///< a sentence that names the file and the remedy
};

/// Reads every byte of every done segment and compares it with its manifest.
std::vector<DamagedSegment> verify_segments(const std::string& out_folder, const FileSystem& files = real_files);

}  // namespace millrace
