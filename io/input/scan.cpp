#include "io/input/scan.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>

#include "base/text.hpp"
#include "io/files/source_names.hpp"

namespace millrace {
namespace {

constexpr std::array<std::string_view, skip_count> skip_names{
    "other_extension",   "hidden",        "system_file", "not_regular", "folder_link", "loop",
    "unreadable_folder", "output_folder", "vanished",    "not_matched", "no_view"};

// The same in words, to follow a number. The first table is for the number 1, where the words differ.
constexpr std::array<std::string_view, skip_count> skip_words_of_one{
    "", "", "system file", "not a regular file", "link to a folder", "link in a loop", "folder that cannot be listed"};
constexpr std::array<std::string_view, skip_count> skip_words{"without the extension of a picture",
                                                              "hidden",
                                                              "system files",
                                                              "not regular files",
                                                              "links to folders",
                                                              "links in a loop",
                                                              "folders that cannot be listed",
                                                              "the output folder",
                                                              "removed during the scan",
                                                              "outside the pattern",
                                                              "in no view"};

/// Also formats that are not decoded: their pictures fail with a reason, and nobody misses them unnoticed.
constexpr std::array<std::string_view, 36> picture_extensions{
    "jpg",  "jpeg",   "jpe",  "jfif", "png",  "bmp",  "dib", "webp", "tif", "tiff", "btf",     "svs",
    "nii",  "nii.gz", "gif",  "ppm",  "pgm",  "pbm",  "pnm", "pam",  "jp2", "j2k",  "jpf",     "jpx",
    "avif", "heic",   "heif", "jxl",  "ndpi", "mrxs", "scn", "vms",  "vmu", "bif",  "svslide", "dcm"};

// Not "ts": TorchScript and TypeScript files end in it too.
constexpr std::array<std::string_view, 19> video_extensions{"mp4",  "mov", "mkv",  "avi", "webm", "m4v", "mpg",
                                                            "mpeg", "mts", "m2ts", "wmv", "flv",  "3gp", "3g2",
                                                            "ogv",  "mxf", "vob",  "asf", "y4m"};

constexpr std::array<std::string_view, 7> system_names{"Thumbs.db",    "desktop.ini", "@eaDir",    "#recycle",
                                                       "$RECYCLE.BIN", "__MACOSX",    "lost+found"};

template <class List, class Value>
bool contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

std::string_view to_string(Skip skip) { return skip_names.at(static_cast<std::size_t>(skip)); }

void Tally::add(std::string_view path) {
  ++count;
  if (first.size() < names_kept) first.emplace_back(path);
}

std::string names_of(const Tally& tally) {
  constexpr std::size_t shown = 3;
  constexpr std::size_t max_bytes = 120;
  std::string list;
  for (std::size_t i = 0; i < std::min(shown, tally.first.size()); ++i) {
    std::string name = display_name(tally.first[i]);
    // The end of a path says more than its beginning. Cut between characters.
    if (name.size() > max_bytes) {
      std::size_t from = name.size() - max_bytes;
      while (from < name.size() && (static_cast<unsigned char>(name[from]) & 0xC0U) == 0x80U) ++from;
      name = "..." + name.substr(from);
    }
    list += (i == 0 ? "" : ", ") + name;
  }
  return list + (tally.count > static_cast<std::int64_t>(shown) ? ", ..." : "");
}

std::int64_t ScanCounts::total_skipped() const {
  return std::accumulate(skipped.begin(), skipped.end(), std::int64_t{0},
                         [](std::int64_t sum, const Tally& tally) { return sum + tally.count; });
}

std::string ScanCounts::summary() const {
  std::string text;
  const auto part = [&](const std::string& said) { text += (text.empty() ? "" : ", ") + said; };
  for (std::size_t i = 0; i < skip_count; ++i) {
    if (skipped[i].count == 0) continue;
    const bool own_word = skipped[i].count == 1 && !skip_words_of_one[i].empty();
    part(grouped(skipped[i].count) + " " + std::string(own_word ? skip_words_of_one[i] : skip_words[i]) + " (" +
         names_of(skipped[i]) + ")");
  }
  if (videos.count > 0) part(count_of(videos.count, "video") + " (not read yet: " + names_of(videos) + ")");
  if (empty_inputs.count > 0)
    part(count_of(empty_inputs.count, "input") + " without a picture (" + names_of(empty_inputs) + ")");
  if (not_selected > 0) part(grouped(not_selected) + " left out by --sample or --every");
  return text;
}

std::string extension_of(std::string_view path) {
  const std::string_view name = path.substr(path.rfind('/') + 1);
  const std::size_t dot = name.ends_with(".nii.gz") ? name.size() - 7 : name.rfind('.');
  if (dot == std::string_view::npos) return {};
  std::string extension(name.substr(dot + 1));
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension;
}

bool is_picture_extension(std::string_view extension) { return contains(picture_extensions, extension); }
bool is_video_extension(std::string_view extension) { return contains(video_extensions, extension); }

std::strong_ordering compare_scan_order(std::string_view a, std::string_view b) {
  const auto [at_a, at_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (at_a == a.end() || at_b == b.end()) return a.size() <=> b.size();
  // '/' ends a name, so it comes before every byte that a name can contain.
  const auto rank = [](char c) { return c == '/' ? 0 : static_cast<unsigned char>(c) + 1; };
  return rank(*at_a) <=> rank(*at_b);
}

FolderWalk::FolderWalk(Options options, ScanCounts& counts, std::stop_token stop)
    : options_(std::move(options)), counts_(counts), stop_(std::move(stop)) {
  enter(!options_.pattern.has_value());
}

std::string FolderWalk::full_path() const {
  if (relative_.empty()) return options_.folder;
  return options_.folder + (options_.folder.ends_with('/') ? "" : "/") + relative_;
}

/// Lists the folder at relative_ and puts it on top of levels_. Counts a folder that is not entered.
void FolderWalk::enter(bool whole) {
  const std::string path = full_path();
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
    const int error = errno;
    if (descriptor >= 0) ::close(descriptor);
    // The machine's fault, not the folder's: to skip the folder would lose its pictures.
    if (error == EMFILE || error == ENFILE || error == ENOMEM) {
      throw InputError("cannot list '" + display_name(path) + "': " + std::strerror(error) +
                       "; raise the limit (ulimit -n) and run the same command again");
    }
    if (relative_.empty()) {
      throw InputError("cannot list the input folder '" + display_name(path) + "': " + std::strerror(error) +
                       "; check that it exists and that you may read it");
    }
    counts_[error == ENOENT ? Skip::vanished : Skip::unreadable_folder].add(relative_);
    return;
  }
  Level level;
  level.identity = {status.st_dev, status.st_ino};
  level.whole = whole;
  // By device and inode, because links and mounts give a folder other names.
  const bool excluded = contains(options_.excluded, level.identity);
  const bool inside_itself =
      std::any_of(levels_.begin(), levels_.end(), [&](const Level& above) { return above.identity == level.identity; });
  if (excluded || inside_itself) {
    counts_[excluded ? Skip::output_folder : Skip::loop].add(relative_);
    ::close(descriptor);
    return;
  }
  if (!relative_.empty()) relative_ += '/';
  level.prefix = relative_.size();
  list(descriptor, level);
  levels_.push_back(std::move(level));
}

void FolderWalk::list(int descriptor, Level& level) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::fdopendir(descriptor), [](DIR* open) { return ::closedir(open); });
  if (!folder) {
    ::close(descriptor);
    throw std::bad_alloc();
  }
  errno = 0;
  while (const dirent* found = ::readdir(folder.get())) {
    if (stop_.stop_requested()) return;
    const std::string_view name = found->d_name;
    if (name != "." && name != "..") consider(name, found->d_type, level);
    errno = 0;
  }
  if (errno != 0) counts_[Skip::unreadable_folder].add(std::string_view(relative_).substr(0, level.prefix));
  // By bytes, so that every scan has the same order: a scan that was cut off continues by it (PlanScan).
  std::sort(level.entries.begin(), level.entries.end(),
            [&](const Entry& a, const Entry& b) { return level.name(a) < level.name(b); });
}

/// Keeps an entry that may lead to a picture and counts the others. Folders outside the pattern are not counted.
void FolderWalk::consider(std::string_view name, unsigned char type, Level& level) {
  relative_.resize(level.prefix);
  relative_ += name;
  const bool below =
      !level.whole && (options_.pattern->matches(relative_) || options_.pattern->may_match_below(relative_));
  // Stays so for links, and where the file system gives no kind: resolve() looks when the walk reaches them.
  Kind kind = Kind::unresolved;
  // A pattern can name hidden entries; then they are not skipped.
  if (name.starts_with('.') && !below) {
    counts_[Skip::hidden].add(relative_);
    return;
  }
  if (contains(system_names, name)) {
    counts_[Skip::system_file].add(relative_);
    return;
  }
  if (type == DT_DIR) {
    if (!level.whole && !below) return;
    kind = Kind::folder;
  } else if (type == DT_REG) {
    if (!takes_file(name, level.whole)) return;
    kind = Kind::file;
  } else if (type != DT_LNK && type != DT_UNKNOWN) {
    counts_[Skip::not_regular].add(relative_);
    return;
  }
  level.entries.push_back({level.names.size(), static_cast<std::uint16_t>(name.size()), kind});
  level.names += name;
}

bool FolderWalk::takes_file(std::string_view name, bool whole) {
  if (!in_pattern(whole)) {
    counts_[Skip::not_matched].add(relative_);
    return false;
  }
  const std::string extension = extension_of(name);
  if (is_video_extension(extension)) {
    counts_.videos.add(relative_);
    return false;
  }
  // A pattern such as *.dat names an extension on purpose, so the table of extensions does not count.
  const bool asked_for = !whole && options_.pattern && options_.pattern->names_extension();
  if (asked_for || is_picture_extension(extension)) return true;
  counts_[Skip::other_extension].add(relative_);
  return false;
}

/// A link, or an entry whose kind the file system did not give. True if it is a picture. Enters a folder.
bool FolderWalk::resolve(std::string_view name, bool whole) {
  struct stat own {};
  struct stat target {};
  const std::string path = full_path();
  if (::lstat(path.c_str(), &own) != 0) {
    counts_[Skip::vanished].add(relative_);
    return false;
  }
  const bool is_link = S_ISLNK(own.st_mode);
  if (::stat(path.c_str(), &target) != 0) {
    // A link to nothing, or to a place that we may not look at: the name decides. Reading it will say why it fails.
    if (errno == EACCES || (is_link && errno == ENOENT)) return takes_file(name, whole);
    counts_[errno == ELOOP ? Skip::loop : Skip::vanished].add(relative_);
    return false;
  }
  if (S_ISREG(target.st_mode)) return takes_file(name, whole);
  if (!S_ISDIR(target.st_mode)) {
    counts_[Skip::not_regular].add(relative_);
  } else if (is_link && !options_.follow_dirs) {
    counts_[Skip::folder_link].add(relative_);
  } else {
    enter_folder(whole);
  }
  return false;
}

void FolderWalk::enter_folder(bool whole) {
  const bool all = in_pattern(whole);
  if (all || options_.pattern->may_match_below(relative_)) enter(all);
}

bool FolderWalk::next(std::string& path) {
  while (!levels_.empty() && !stop_.stop_requested()) {
    Level& level = levels_.back();
    if (level.at == level.entries.size()) {
      levels_.pop_back();
      continue;
    }
    const Entry entry = level.entries[level.at++];
    const bool whole = level.whole;
    const std::string name(level.name(entry));  // a copy, because entering a folder moves the levels
    relative_.resize(level.prefix);
    relative_ += name;
    if (entry.kind == Kind::folder) {
      enter_folder(whole);
    } else if (entry.kind == Kind::file || resolve(name, whole)) {
      if (extension_of(name) == "dcm" && std::exchange(levels_.back().has_series, true)) continue;
      path = relative_;
      return true;
    }
  }
  return false;
}

}  // namespace millrace
