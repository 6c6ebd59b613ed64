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

/// What the store needs from its caller: a clock, an interval, and a function for side files.
struct SegmentStoreOptions {
  /// A monotonic clock in ns; the steady clock if empty.
  std::function<std::int64_t()> now_ns;
  /// append() syncs the journals if the last sync is this long ago. A power cut can cost the work of that time.
  std::int64_t sync_every_ns = 5'000'000'000;
  /// Makes all side files written so far durable (sync_file_system).
  /// The store calls it before it syncs journals and before it writes a manifest.
  /// Otherwise a power cut could take side files of lines that are durable.
  /// It is called under the store's lock and must not call the store.
  std::function<void()> sync_side_files;
  /// Called when a segment is committed. It is called under the store's lock and must not call the store.
  std::function<void(const Manifest& segment)> committed;
};

/// The results of a run. Lines come in by batch in any order; each segment is written in plan order.
/// An interrupted run continues where it was. The bytes of the segments depend on plan and lines alone.
///
/// A finished batch is appended to the journal `segments/000123.part`.
/// The last batch of a segment commits it, in this order:
/// - the data file: written under a temporary name, fsync, rename, fsync of the folder
/// - each side column, in the same way
/// - sync_side_files
/// - the manifest, in the same way as the data file
/// - removal of the journal
///
/// A segment with a manifest is done, and its manifest never changes.
/// But if its data file or a side column is missing or has the wrong length, the segment is computed again.
///
/// Memory: some 64 bytes for each item of the open segments, one batch, one line.
/// All functions may be called from any thread.
/// Every storage failure throws StorageError and is final for this object: all later calls that write throw it again.
/// What is committed or journaled stays for the next attempt.
class SegmentStore {
 public:
  /// The output folder must exist and be locked by the caller.
  /// Removes leftovers of a killed run and finds what is done.
  /// Throws OutputMismatchError if a manifest there belongs to another plan.
  SegmentStore(std::string out_folder, std::string plan_hash, SegmentStoreOptions options = {},
               const FileSystem& files = real_files);

  /// Whether the segment has a manifest, and a data file and side columns of the right lengths.
  /// Throws OutputMismatchError if it was made of other items than those of `items_hash`. An empty hash accepts any.
  bool segment_done(std::int64_t segment, std::string_view items_hash = {}) const;

  /// Opens a segment. Returns for each batch whether an earlier attempt has finished it (all, if the segment is done).
  /// `item_ids` are the segment's items in plan order. `batches[b]` has the rows of batch b.
  /// A row is an index into item_ids. Each row is in exactly one batch.
  /// `items_hash` stands for the items as the plan has them. Journal lines of other items are ignored.
  /// For a done segment it is compared as in segment_done().
  /// If every batch turns out to be finished, the segment is committed here.
  /// Throws std::logic_error for wrong batches and for a segment that is open already.
  std::vector<char> open_segment(std::int64_t segment, const std::vector<std::int64_t>& item_ids,
                                 const std::vector<std::vector<int>>& batches, std::string_view items_hash = {});

  /// Takes the lines of one batch, one for each of its items, in any order. The last batch commits the segment.
  /// Throws std::logic_error if segment, batch or items are not those of open_segment().
  void append(std::int64_t segment, int batch, const std::vector<Line>& lines);

  /// Makes all appended lines durable. Throws also if the output folder was deleted.
  void sync();

  /// Items of done segments and of finished batches, including those of earlier attempts.
  Counts totals() const;

  /// Sentences for the log: what was found damaged and is computed again.
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
  std::map<std::int64_t, std::string> done_;  // done segments with their items_hash
  std::map<std::int64_t, OpenSegment> open_;
  Counts totals_;
  std::vector<std::string> notes_;
  std::optional<StorageError> failure_;
  std::int64_t last_sync_ns_ = 0;
  bool names_unsynced_ = false;
};

/// Makes many files durable at once: syncfs(2) of the file system that contains `folder`.
void sync_file_system(const std::string& folder, const FileSystem& files = real_files);

}  // namespace millrace
