#include "io/results/segments.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <stdexcept>
#include <utility>

namespace millrace {
namespace {

/// Bytes of a data file that are collected before they are hashed and written.
constexpr std::size_t chunk_bytes = 1 << 20;

std::string in_segment(std::int64_t segment) { return " in segment " + std::to_string(segment); }

/// Throws unless every row is in exactly one batch, as a plan promises.
void check_batches(std::int64_t segment, std::size_t rows, const std::vector<std::vector<int>>& batches) {
  std::vector<char> seen(rows, 0);
  std::size_t count = 0;
  for (const auto& batch : batches) {
    if (batch.empty()) throw std::logic_error("a batch without items" + in_segment(segment));
    for (const int row : batch) {
      if (row < 0 || static_cast<std::size_t>(row) >= rows || seen[static_cast<std::size_t>(row)] != 0) {
        throw std::logic_error("row " + std::to_string(row) + in_segment(segment) +
                               " is in two batches or does not exist");
      }
      seen[static_cast<std::size_t>(row)] = 1;
      ++count;
    }
  }
  if (count != rows) throw std::logic_error("not every row is in a batch" + in_segment(segment));
}

/// The row of an item among those of a batch. Batches are small, so a search is cheaper than an index.
std::optional<std::size_t> row_of(std::int64_t item_id, const std::vector<int>& batch,
                                  const std::vector<std::int64_t>& item_ids) {
  for (const int row : batch) {
    if (item_ids[static_cast<std::size_t>(row)] == item_id) return static_cast<std::size_t>(row);
  }
  return std::nullopt;
}

}  // namespace

SegmentStore::SegmentStore(std::string out_folder, std::string plan_hash, SegmentStoreOptions options,
                           const FileSystem& files)
    : out_folder_(std::move(out_folder)),
      folder_(segments_folder(out_folder_)),
      plan_hash_(std::move(plan_hash)),
      options_(std::move(options)),
      files_(files) {
  make_folder(folder_, files_);
  remove_stale_temporaries(folder_, files_);
  find_done_segments();
  last_sync_ns_ = now_ns();
}

void SegmentStore::find_done_segments() {
  std::vector<std::int64_t> journals;
  std::vector<SegmentFile> columns;
  for (const std::string& name : list_folder(folder_, files_)) {
    const auto file = SegmentFile::from_name(name);
    if (!file) continue;
    if (file->kind == SegmentFile::Kind::journal) journals.push_back(file->segment);
    if (file->kind == SegmentFile::Kind::column && file->revision == 0) columns.push_back(*file);
    // Revisions only replace lines of a done segment: its own manifest decides whether it is done.
    if (file->kind != SegmentFile::Kind::manifest || file->revision > 0) continue;
    const auto manifest = read_manifest(out_folder_, *file, plan_hash_, files_);
    if (!manifest) {
      notes_.push_back("'" + folder_ + "/" + name + "' is damaged: its segment is computed again");
      continue;
    }
    // Only lengths: hashes would make each start read the whole output. `millrace status --verify` compares them.
    if (const auto problem = length_problem(out_folder_, *manifest, files_)) {
      notes_.push_back(*problem + ": its segment is computed again");
      continue;
    }
    done_.emplace(file->segment, manifest->items_hash);
    totals_.add(manifest->counts);
    totals_.resumed += manifest->counts.items;
  }
  // A run that was killed between writing a manifest and removing its journal leaves both.
  for (const std::int64_t segment : journals) {
    if (!done_.contains(segment)) continue;
    remove_file(folder_ + "/" + SegmentFile{segment, 0, SegmentFile::Kind::journal}.name(), files_);
  }
  // A run that was killed before writing the manifest leaves side columns.
  for (const SegmentFile& column : columns) {
    if (!done_.contains(column.segment)) remove_file(folder_ + "/" + column.name(), files_);
  }
}

std::int64_t SegmentStore::now_ns() const {
  return options_.now_ns ? options_.now_ns() : std::chrono::steady_clock::now().time_since_epoch().count();
}

void SegmentStore::check_usable() const {
  if (failure_) throw StorageError(*failure_);
}

/// Runs an action that writes. After a failed one, file and memory may differ, so nothing more is written.
/// For example, a short write makes a journal longer than its object knows, so later offsets would be wrong.
template <typename Action>
void SegmentStore::storing(const Action& action) {
  check_usable();
  try {
    action();
  } catch (const StorageError& error) {
    failure_ = error;
    throw;
  }
}

bool SegmentStore::is_done(std::int64_t segment, std::string_view items_hash) const {
  const auto found = done_.find(segment);
  if (found == done_.end()) return false;
  if (!items_hash.empty() && found->second != items_hash) {
    throw OutputMismatchError("segment " + std::to_string(segment) + " in '" + folder_ +
                              "' was made of other pictures than the plan has now. Choose another output folder, "
                              "or delete plan/ and segments/ in this one to compute all again");
  }
  return true;
}

bool SegmentStore::segment_done(std::int64_t segment, std::string_view items_hash) const {
  const std::scoped_lock lock(mutex_);
  return is_done(segment, items_hash);
}

std::vector<char> SegmentStore::open_segment(std::int64_t segment, const std::vector<std::int64_t>& item_ids,
                                             const std::vector<std::vector<int>>& batches,
                                             std::string_view items_hash) {
  check_batches(segment, item_ids.size(), batches);
  const std::scoped_lock lock(mutex_);
  if (is_done(segment, items_hash)) return std::vector<char>(batches.size(), 1);
  if (open_.contains(segment)) throw std::logic_error("opened twice:" + in_segment(segment));
  OpenSegment open;
  open.items_hash = items_hash;
  open.item_ids = item_ids;
  open.batches = batches;
  open.batch_done.assign(batches.size(), 0);
  open.batches_left = batches.size();
  open.entries.resize(item_ids.size());
  std::vector<char> finished;
  // `open_` must contain the segment before commit(), which takes it from there.
  // All batches are done here if a run was killed after the last lines and before the manifest.
  storing([&] {
    recover(segment, open);
    finished = open.batch_done;
    open_.emplace(segment, std::move(open));
    if (open_.at(segment).batches_left == 0) commit(segment);
  });
  return finished;
}

void SegmentStore::recover(std::int64_t segment, OpenSegment& open) {
  // The check has 32 bits, so a wrong line can pass it by chance. Batch and item are compared with the plan too.
  const auto take = [&](const JournalEntry& entry) {
    if (entry.batch < 0 || static_cast<std::size_t>(entry.batch) >= open.batches.size()) return;
    const auto row = row_of(entry.item_id, open.batches[static_cast<std::size_t>(entry.batch)], open.item_ids);
    if (row) open.entries[*row] = entry;
  };
  const std::string path = folder_ + "/" + SegmentFile{segment, 0, SegmentFile::Kind::journal}.name();
  // The key makes lines invalid that belong to another plan, segment or list of items.
  const std::string key = plan_hash_ + "/" + std::to_string(segment) + "/" + open.items_hash + "/";
  open.journal.emplace(path, key, take, files_);
  // Also for a file that existed: the attempt that created it may not have synced the folder.
  names_unsynced_ = true;
  if (open.journal->scan().invalid_lines > 0) {
    notes_.push_back("'" + path + "' had " + std::to_string(open.journal->scan().invalid_lines) +
                     " torn or damaged line(s): their batches are computed again");
  }
  for (std::size_t batch = 0; batch < open.batches.size(); ++batch) {
    const auto& rows = open.batches[batch];
    const auto has_line = [&](int row) { return open.entries[static_cast<std::size_t>(row)].has_value(); };
    if (std::all_of(rows.begin(), rows.end(), has_line)) finish_batch(open, batch, true);
  }
}

void SegmentStore::finish_batch(OpenSegment& open, std::size_t batch, bool resumed) {
  open.batch_done[batch] = 1;
  --open.batches_left;
  for (const int row : open.batches[batch]) {
    const JournalEntry& entry = *open.entries[static_cast<std::size_t>(row)];
    totals_.add(entry.ok, entry.reason, entry.objects);
    if (resumed) ++totals_.resumed;
  }
}

void SegmentStore::append(std::int64_t segment, int batch, const std::vector<Line>& lines) {
  const std::scoped_lock lock(mutex_);
  check_usable();
  const auto found = open_.find(segment);
  const auto index = static_cast<std::size_t>(batch);
  if (found == open_.end() || batch < 0 || index >= found->second.batches.size() ||
      found->second.batch_done[index] != 0) {
    throw std::logic_error("batch " + std::to_string(batch) + in_segment(segment) +
                           " was not expected: not opened, not planned or already there");
  }
  OpenSegment& open = found->second;
  // All lines are checked first, so nothing is written of a batch that is refused.
  std::set<std::size_t> rows;
  for (const Line& line : lines) {
    const auto row = row_of(line.item_id, open.batches[index], open.item_ids);
    if (!row || !rows.insert(*row).second) {
      throw std::logic_error("item " + std::to_string(line.item_id) + " is not planned, or twice, in batch " +
                             std::to_string(batch) + in_segment(segment));
    }
  }
  if (rows.size() != open.batches[index].size()) {
    throw std::logic_error("batch " + std::to_string(batch) + in_segment(segment) + " came with " +
                           std::to_string(rows.size()) + " lines for " + std::to_string(open.batches[index].size()) +
                           " items");
  }
  storing([&] {
    for (const JournalEntry& entry : open.journal->append(batch, lines)) {
      open.entries[*row_of(entry.item_id, open.batches[index], open.item_ids)] = entry;
    }
    finish_batch(open, index, false);
    if (open.batches_left == 0) commit(segment);
    if (now_ns() - last_sync_ns_ >= options_.sync_every_ns) sync_journals();
  });
}

Manifest SegmentStore::write_data(std::int64_t segment, const OpenSegment& open) const {
  Manifest manifest;
  manifest.segment = segment;
  manifest.plan_hash = plan_hash_;
  manifest.items_hash = open.items_hash;
  if (!open.item_ids.empty()) {
    manifest.first_item = open.item_ids.front();
    manifest.last_item = open.item_ids.back();
  }
  ColumnWriter columns(folder_, segment, files_);
  AtomicFile data(folder_, SegmentFile{segment, 0, SegmentFile::Kind::data}.name(), files_);
  Xxh3 hash;
  std::string bytes;
  const auto flush = [&] {
    hash.add(bytes);
    data.write(bytes);
    manifest.bytes += static_cast<std::int64_t>(bytes.size());
    bytes.clear();
  };
  for (const auto& entry : open.entries) {
    // The lines are read back from the journal, so an open segment keeps only their positions in memory.
    bytes += columns.take_rows(open.journal->read(*entry));
    bytes += '\n';
    manifest.counts.add(entry->ok, entry->reason, entry->objects);
    if (bytes.size() >= chunk_bytes) flush();
  }
  flush();
  manifest.xxh3 = hash.hex();
  data.commit();
  manifest.columns = columns.commit();
  return manifest;
}

void SegmentStore::commit(std::int64_t segment) {
  const auto found = open_.find(segment);
  const std::string journal_path = found->second.journal->path();
  const Manifest manifest = write_data(segment, found->second);
  // Before the manifest: no run processes the pictures of a done segment again, so its side files must be durable.
  if (options_.sync_side_files) options_.sync_side_files();
  write_durably(folder_, SegmentFile{segment, 0, SegmentFile::Kind::manifest}.name(), manifest.to_text(), files_);
  // From here on the segment is done, even if the journal cannot be removed: the next start removes it.
  done_.emplace(segment, found->second.items_hash);
  open_.erase(found);
  remove_file(journal_path, files_);
  if (options_.committed) options_.committed(manifest);
}

void SegmentStore::sync() {
  const std::scoped_lock lock(mutex_);
  storing([&] { sync_journals(); });
}

void SegmentStore::sync_journals() {
  // Without an open segment, commit() has synced all side files already.
  if (options_.sync_side_files && !open_.empty()) options_.sync_side_files();
  for (auto& [segment, open] : open_) open.journal->sync();
  // If a power cut takes the name of a journal, it takes all its lines.
  if (names_unsynced_) sync_folder(folder_, files_);
  names_unsynced_ = false;
  last_sync_ns_ = now_ns();
}

Counts SegmentStore::totals() const {
  const std::scoped_lock lock(mutex_);
  return totals_;
}

std::vector<std::string> SegmentStore::notes() const {
  const std::scoped_lock lock(mutex_);
  return notes_;
}

void sync_file_system(const std::string& folder, const FileSystem& files) {
  const File file(folder, O_RDONLY | O_DIRECTORY, files);
  if (files.syncfs(file.descriptor()) != 0) {
    const int error_number = errno;
    throw StorageError("sync the file system of", folder, error_number);
  }
}

}  // namespace millrace
