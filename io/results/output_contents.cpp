#include "io/results/output_contents.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "base/json.hpp"

namespace millrace {
namespace {

constexpr std::size_t chunk_bytes = 1 << 20;

std::string path_of(const std::string& out_folder, const SegmentFile& file) {
  return segments_folder(out_folder) + "/" + file.name();
}

/// The manifests of a done segment: its own, then those of its revisions in rising order.
using Revisions = std::vector<Manifest>;

struct Folder {
  std::map<std::int64_t, Revisions> done;
  std::vector<SegmentFile> damaged;  // manifests that cannot be read
  std::vector<std::int64_t> journals;
};

// A run checks manifests and lengths, so it repairs these faults by itself.
constexpr const char* same_run_again = ": repeat the run to compute its segment again";

std::string damaged_manifest(const std::string& out_folder, const SegmentFile& file) {
  return "'" + path_of(out_folder, file) + "' is damaged" + same_run_again;
}

std::optional<std::string> length_problem_with_remedy(const std::string& out_folder, const Manifest& manifest,
                                                      const FileSystem& files) {
  auto problem = length_problem(out_folder, manifest, files);
  if (problem) *problem += same_run_again;
  return problem;
}

std::optional<std::string> hash_problem(const std::string& out_folder, const SegmentFile& file,
                                        const std::string& planned, const FileSystem& files) {
  const std::string hash = xxh3_64_file_hex(path_of(out_folder, file), files);
  if (hash == planned) return std::nullopt;
  return "'" + path_of(out_folder, file) + "' has hash " + hash + "; its segment manifest says " + planned +
         ": delete '" + path_of(out_folder, {file.segment, file.revision, SegmentFile::Kind::manifest}) +
         "', then repeat the run to compute its segment again";
}

/// The sentence for a data file that differs from its manifest in length or in any byte.
std::optional<std::string> problem_of(const std::string& out_folder, const Manifest& manifest,
                                      const FileSystem& files) {
  if (auto problem = length_problem_with_remedy(out_folder, manifest, files)) return problem;
  return hash_problem(out_folder, {manifest.segment, manifest.revision, SegmentFile::Kind::data}, manifest.xxh3, files);
}

/// The same for the data file and all side columns.
std::optional<std::string> problem_of_all(const std::string& out_folder, const Manifest& manifest,
                                          const FileSystem& files) {
  if (auto problem = problem_of(out_folder, manifest, files)) return problem;
  for (const SideColumn& column : manifest.columns) {
    const SegmentFile file{manifest.segment, manifest.revision, SegmentFile::Kind::column, column.name};
    if (auto problem = hash_problem(out_folder, file, column.xxh3, files)) return problem;
  }
  return std::nullopt;
}

[[noreturn]] void throw_damaged(const std::string& problem) {
  throw ResultsDamaged(problem + "; 'millrace status --verify' checks all segments");
}

/// A damaged manifest hides lines, so it must not pass without a message.
void require_manifests(const std::string& out_folder, const Folder& folder) {
  if (!folder.damaged.empty()) throw_damaged(damaged_manifest(out_folder, folder.damaged.front()));
}

Folder look_at(const std::string& out_folder, const std::string& plan_hash, const FileSystem& files) {
  Folder folder;
  std::map<std::int64_t, std::map<int, Manifest>> manifests;
  for (const std::string& name : list_folder(segments_folder(out_folder), files)) {
    const auto file = SegmentFile::from_name(name);
    if (!file) continue;
    if (file->kind == SegmentFile::Kind::journal) folder.journals.push_back(file->segment);
    if (file->kind != SegmentFile::Kind::manifest) continue;
    if (auto manifest = read_manifest(out_folder, *file, plan_hash, files)) {
      manifests[file->segment].emplace(file->revision, std::move(*manifest));
    } else {
      folder.damaged.push_back(*file);
    }
  }
  for (auto& [segment, revisions] : manifests) {
    // Revisions have only the lines that they replace, so without its own manifest the segment is not done.
    if (!revisions.contains(0)) continue;
    for (auto& [revision, manifest] : revisions) folder.done[segment].push_back(std::move(manifest));
  }
  return folder;
}

void for_each_line_of_file(const std::string& out_folder, const Manifest& manifest, const FileSystem& files,
                           const std::function<bool(std::string_view)>& take) {
  // Checked before any line is given: a changed byte can leave a line that parses and says something else.
  if (const auto problem = problem_of(out_folder, manifest, files)) throw_damaged(*problem);
  const std::string path = path_of(out_folder, {manifest.segment, manifest.revision, SegmentFile::Kind::data});
  const File file(path, O_RDONLY, files);
  std::vector<char> chunk(chunk_bytes);
  std::string held;
  std::int64_t offset = 0;
  while (const std::size_t count = file.read_at(chunk, offset)) {
    offset += static_cast<std::int64_t>(count);
    std::size_t searched = held.size();
    held.append(chunk.data(), count);
    std::size_t begin = 0;
    for (std::size_t end = held.find('\n', searched); end != std::string::npos; end = held.find('\n', begin)) {
      if (!take(std::string_view(held).substr(begin, end - begin))) return;
      begin = end + 1;
    }
    held.erase(0, begin);
  }
  if (!held.empty()) throw_damaged("'" + path + "' ends in the middle of a line");
}

/// The id of a line. Lines begin with {"id": N: the journal checks it before it takes them.
std::int64_t item_id_of(std::string_view line, const std::string& path) {
  const std::size_t colon = line.find(':');
  std::int64_t id = -1;
  if (line.starts_with("{\"id\"") && colon != std::string_view::npos) {
    const std::size_t digits = std::min(line.find_first_not_of(' ', colon + 1), line.size());
    std::from_chars(line.data() + digits, line.data() + line.size(), id);
  }
  if (id < 0) {
    throw_damaged("'" + path + "' has a line that does not begin with its id");
  }
  return id;
}

/// Gives the lines of one segment, each item by its highest revision. False if `take` stopped it.
bool for_each_line_of_segment(const std::string& out_folder, const Revisions& revisions, const FileSystem& files,
                              const std::function<bool(const SegmentLine&)>& take) {
  const std::int64_t segment = revisions.front().segment;
  // Revised lines are kept in memory until the item's place in plan order comes.
  struct Newer {
    int revision = 0;
    std::string line;
  };
  std::map<std::int64_t, Newer> revised;
  for (std::size_t i = 1; i < revisions.size(); ++i) {
    const std::string path = path_of(out_folder, {segment, revisions[i].revision, SegmentFile::Kind::data});
    for_each_line_of_file(out_folder, revisions[i], files, [&](std::string_view line) {
      revised[item_id_of(line, path)] = {revisions[i].revision, std::string(line)};
      return true;
    });
  }
  bool going = true;
  const std::string path = path_of(out_folder, {segment, 0, SegmentFile::Kind::data});
  for_each_line_of_file(out_folder, revisions.front(), files, [&](std::string_view line) {
    const std::int64_t item_id = item_id_of(line, path);
    const auto newer = revised.find(item_id);
    going = take(newer == revised.end() ? SegmentLine{segment, item_id, 0, line}
                                        : SegmentLine{segment, item_id, newer->second.revision, newer->second.line});
    return going;
  });
  return going;
}

/// Counts of a segment with revisions. Only the lines show which items a revision replaced.
Counts recount(const std::string& out_folder, const Revisions& revisions, const FileSystem& files) {
  Counts counts;
  for_each_line_of_segment(out_folder, revisions, files, [&](const SegmentLine& line) {
    const FrameRecord frame = parse_frame(line.json);
    counts.add(!frame.failed, frame.reason, static_cast<std::int64_t>(frame.objects.size()));
    return true;
  });
  return counts;
}

std::int64_t count_journaled(const std::string& path, const FileSystem& files) {
  // A set, because a batch that was cut off is computed again and leaves some items with two lines.
  std::set<std::int64_t> items;
  try {
    scan_journal(
        path, [&](const JournalEntry& entry) { items.insert(entry.item_id); }, files);
  } catch (const StorageError& error) {
    // A run in progress may have committed the segment after the folder was listed.
    if (error.error_number() != ENOENT) throw;
  }
  return static_cast<std::int64_t>(items.size());
}

using Check = std::optional<std::string>(const std::string&, const Manifest&, const FileSystem&);

/// The result of a check. If a file cannot be read, the sentence says that.
std::optional<std::string> found_by(Check& check, const std::string& out_folder, const Manifest& manifest,
                                    const FileSystem& files) {
  try {
    return check(out_folder, manifest, files);
  } catch (const StorageError& error) {
    return error.what();
  }
}

}  // namespace

OutputContents read_contents(const std::string& out_folder, const std::string& plan_hash,
                             std::optional<std::int64_t> planned, const FileSystem& files) {
  OutputContents contents;
  contents.planned = planned;
  const Folder folder = look_at(out_folder, plan_hash, files);
  for (const SegmentFile& file : folder.damaged) contents.problems.push_back(damaged_manifest(out_folder, file));
  for (const auto& [segment, revisions] : folder.done) {
    bool whole = true;
    for (const Manifest& manifest : revisions) {
      auto problem = found_by(length_problem_with_remedy, out_folder, manifest, files);
      if (!problem) continue;
      contents.problems.push_back(*std::move(problem));
      whole = false;
    }
    if (!whole) continue;
    ++contents.done_segments;
    contents.counts.add(revisions.size() == 1 ? revisions.front().counts : recount(out_folder, revisions, files));
  }
  for (const std::int64_t segment : folder.journals) {
    // The journal of a done segment is a leftover, which the next run removes. Its items are counted above.
    if (folder.done.contains(segment)) continue;
    contents.open_segments.push_back(segment);
    contents.journaled_items += count_journaled(path_of(out_folder, {segment, 0, SegmentFile::Kind::journal}), files);
  }
  contents.locked_by = lock_holder(out_folder);
  return contents;
}

void for_each_line(const std::string& out_folder, const std::function<bool(const SegmentLine&)>& take,
                   const FileSystem& files) {
  const Folder folder = look_at(out_folder, {}, files);
  require_manifests(out_folder, folder);
  for (const auto& [segment, revisions] : folder.done) {
    if (!for_each_line_of_segment(out_folder, revisions, files, take)) return;
  }
}

SegmentReader::SegmentReader(std::string out_folder, const FileSystem& files)
    : out_folder_(std::move(out_folder)), files_(files) {
  Folder folder = look_at(out_folder_, {}, files_);
  require_manifests(out_folder_, folder);
  for (auto& [segment, revisions] : folder.done) done_.push_back(std::move(revisions));
}

std::optional<std::vector<std::string>> SegmentReader::next() {
  if (next_ == done_.size()) return std::nullopt;
  std::vector<std::string> lines;
  for_each_line_of_segment(out_folder_, done_[next_++], files_, [&](const SegmentLine& line) {
    lines.emplace_back(line.json);
    return true;
  });
  return lines;
}

void for_each_failed(const std::string& out_folder, const std::function<void(const FrameRecord&)>& take,
                     const FileSystem& files) {
  const Folder folder = look_at(out_folder, {}, files);
  require_manifests(out_folder, folder);
  for (const auto& [segment, revisions] : folder.done) {
    const auto has_failed = [](const Manifest& manifest) { return manifest.counts.failed_items() > 0; };
    if (std::none_of(revisions.begin(), revisions.end(), has_failed)) continue;
    for_each_line_of_segment(out_folder, revisions, files, [&](const SegmentLine& line) {
      // Such a segment has mostly long lines of good pictures. Searching for the word is cheaper than parsing them.
      if (line.json.find("\"failed\"") == std::string_view::npos) return true;
      const FrameRecord frame = parse_frame(line.json);
      if (frame.failed) take(frame);
      return true;
    });
  }
}

std::vector<DamagedSegment> verify_segments(const std::string& out_folder, const FileSystem& files) {
  std::vector<DamagedSegment> damaged;
  const Folder folder = look_at(out_folder, {}, files);
  for (const SegmentFile& file : folder.damaged) {
    damaged.push_back({file.segment, file.revision, -1, -1, damaged_manifest(out_folder, file)});
  }
  for (const auto& [segment, revisions] : folder.done) {
    for (const Manifest& manifest : revisions) {
      const auto problem = found_by(problem_of_all, out_folder, manifest, files);
      if (!problem) continue;
      damaged.push_back({segment, manifest.revision, manifest.first_item, manifest.last_item, *problem});
    }
  }
  return damaged;
}

}  // namespace millrace
