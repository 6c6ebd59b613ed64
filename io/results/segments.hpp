#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/files.hpp"
#include "io/results/journal.hpp"
#include "io/results/segments_manifest.hpp"

namespace millrace {

/// What the store is told about its surroundings.
struct SegmentStoreOptions {
  /// A clock that only goes forward, in ns; the steady clock if empty.
  std::function<std::int64_t()> now_ns;
  /// Journals are synced by the first append() this long after the last sync: what a power cut may cost.
  std::int64_t sync_every_ns = 5'000'000'000;
  /// Makes all side files written so far durable (sync_file_system): called before journals are synced and before a
  /// manifest is written, so that what a sync made durable promises no side file that a power cut can take. It is
  /// called under the store's lock and must not call the store.
  std::function<void()> sync_side_files;
};

/// The results of a run: lines come in by batch in any order, segments come out in plan order, and whatever is
/// interrupted goes on where it was. Bytes of the segments depend on plan and lines alone.
///
/// A finished batch is appended to `segments/000123.part`. With the last one the segment is committed, in this order:
/// data aside, fsync; rename; fsync folder; the same for each side column; sync_side_files; manifest aside, fsync;
/// rename; fsync folder; the journal goes. A manifest that is there is a segment that is done, and is never changed,
/// unless what it says is no longer there: then the segment is computed again.
///
/// Memory: some 64 bytes an item of the open segments, one batch, one line. All functions may be called from any
/// thread. Every storage failure throws StorageError and is final for this object: all later calls that write throw it
/// again, while what is committed or journaled stays for the next attempt.
class SegmentStore {
 public:
  /// The output folder must exist and be locked by the caller. Removes leftovers of a killed run, finds what is done.
  /// Throws OutputMismatchError if a manifest there belongs to another plan.
  SegmentStore(std::string out_folder, std::string plan_hash, SegmentStoreOptions options = {},
               const FileSystem& files = real_files);

  /// Whether the segment's manifest is there, and a data file and side columns of their lengths. Throws
  /// OutputMismatchError if it was made of other items than those of `items_hash` (an empty one stands for any).
  bool segment_done(std::int64_t segment, std::string_view items_hash = {}) const;

  /// Opens a segment and returns which of its batches an earlier attempt has finished (all of them if it is done).
  /// `item_ids` are the segment's items in plan order, `batches[b]` the rows of item_ids that batch b holds; each row
  /// stands in one batch. `items_hash` stands for what the items are, as the plan has them: lines of other items are
  /// not taken, and for a segment that is done already it is compared as in segment_done(). A segment that turns out
  /// complete is committed here.
  std::vector<char> open_segment(std::int64_t segment, const std::vector<std::int64_t>& item_ids,
                                 const std::vector<std::vector<int>>& batches, std::string_view items_hash = {});

  /// Takes the lines of one batch, one for each of its items in any order, and commits the segment if it was the last.
  /// Throws std::logic_error if segment, batch or items are not what open_segment() was told.
  void append(std::int64_t segment, int batch, const std::vector<Line>& lines);

  /// Makes all appended lines durable. Throws too if the output folder was deleted.
  void sync();

  /// Items of done segments and of finished batches, those of earlier attempts included.
  Counts totals() const;

  /// What was found damaged on opening and will be computed again; for the log.
  std::vector<std::string> notes() const;

 private:
  struct OpenSegment {
    std::string items_hash;
    std::vector<std::int64_t> item_ids;
    std::vector<std::vector<int>> batches;
    std::vector<char> batch_done;
    std::size_t batches_left = 0;
    std::vector<std::optional<JournalEntry>> entries;  // by row
    std::optional<Journal> journal;
  };

  void check_usable() const;
  template <typename Action>
  void storing(const Action& action);
  void find_done_segments();
  bool is_done(std::int64_t segment, std::string_view items_hash) const;
  void recover(std::int64_t segment, OpenSegment& open);
  void finish_batch(OpenSegment& open, std::size_t batch, bool resumed);
  void commit(std::int64_t segment);
  Manifest write_data(std::int64_t segment, const OpenSegment& open) const;
  void sync_journals();
  std::int64_t now_ns() const;

  const std::string out_folder_, folder_, plan_hash_;
  const SegmentStoreOptions options_;
  const FileSystem& files_;

  mutable std::mutex mutex_;                  // guards all below
  std::map<std::int64_t, std::string> done_;  // with its items_hash
  std::map<std::int64_t, OpenSegment> open_;
  Counts totals_;
  std::vector<std::string> notes_;
  std::optional<StorageError> failure_;
  std::int64_t last_sync_ns_ = 0;
  bool names_unsynced_ = false;
};

/// syncfs(2) of the file system that holds `folder`: makes many files durable at once.
void sync_file_system(const std::string& folder, const FileSystem& files = real_files);

}  // namespace millrace
