#pragma once

#include <sys/stat.h>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "io/input/glob.hpp"

namespace millrace {

/// What the user named as input cannot be used: what, where, and what to do. Exit code 2.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Why something met while scanning is no item. Names are stable and stand in plan/end.json.
enum class Skip {
  other_extension,    ///< a file that no picture is called like
  hidden,             ///< a name that starts with a dot (.DS_Store too)
  system_file,        ///< Thumbs.db, desktop.ini, @eaDir, #recycle, $RECYCLE.BIN, __MACOSX, lost+found
  not_regular,        ///< a pipe, socket or device
  folder_link,        ///< a link to a folder, without follow_dirs
  loop,               ///< a folder that contains itself by a link or mount, or a link that leads to itself
  unreadable_folder,  ///< a folder that could not be listed
  output_folder,      ///< this run's output
  vanished,           ///< removed while the scan ran
  not_matched,        ///< beside the glob pattern
  no_view,            ///< matches the pattern of no view
};
inline constexpr std::size_t skip_count = 11;

/// The stable name, e.g. "other_extension".
std::string_view to_string(Skip skip);

/// How often something was met, and the first few names as evidence.
struct Tally {
  static constexpr std::size_t names_kept = 10;
  std::int64_t count = 0;
  std::vector<std::string> first;  ///< bytes as the file system has them
  void add(std::string_view path);
};

/// The first three names, printable and of a length to be read: "a.jpg, b.jpg, c.jpg, ...".
std::string names_of(const Tally& tally);

/// Everything a scan saw that did not become an item.
struct ScanCounts {
  std::array<Tally, skip_count> skipped;
  Tally videos;                   ///< not read yet
  Tally empty_inputs;             ///< of several inputs, those that named nothing
  std::int64_t not_selected = 0;  ///< left out by --sample and --every

  Tally& operator[](Skip skip) { return skipped[static_cast<std::size_t>(skip)]; }
  const Tally& operator[](Skip skip) const { return skipped[static_cast<std::size_t>(skip)]; }
  std::int64_t total_skipped() const;
  /// "12 other_extension (notes.md, ...), 2 videos (not read yet: a.mp4)"; empty when nothing was skipped.
  std::string summary() const;
};

/// The lower-case extension without its dot; empty where there is none.
std::string extension_of(std::string_view path);
bool is_picture_extension(std::string_view extension);
bool is_video_extension(std::string_view extension);

/// A file or folder whatever its name.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const FileIdentity&) const = default;
};

/// The order of a depth-first walk with each folder's entries sorted by bytes: names compared one by one.
std::strong_ordering compare_scan_order(std::string_view a, std::string_view b);

/// A depth-first walk over the pictures below a folder, in the order of compare_scan_order.
/// Files are taken by extension (content decides when they are decoded); links to files are followed, links to folders
/// with follow_dirs only. One folder is open at a time; in memory are the names of the folders on the way down (about
/// 16 bytes and the name for each entry that is a folder, a link or a picture), so 10^6 files in one folder need some
/// 40 MB.
class FolderWalk {
 public:
  struct Options {
    std::string folder;           ///< absolute
    std::optional<Glob> pattern;  ///< relative to the folder; a folder that matches is walked whole
    bool follow_dirs = false;
    std::vector<FileIdentity> excluded;  ///< folders never entered, e.g. the output
  };

  /// Throws InputError when the folder itself cannot be listed. `counts` outlives the walk.
  FolderWalk(Options options, ScanCounts& counts, std::stop_token stop = {});

  /// The next picture's path relative to the folder; false at the end or when stopped.
  bool next(std::string& path);

 private:
  enum class Kind : std::uint8_t { file, folder, unresolved };
  struct Entry {
    std::size_t offset;
    std::uint16_t length;
    Kind kind;
  };
  struct Level {
    std::string names;  // all names, one after the other
    std::vector<Entry> entries;
    std::size_t at = 0;
    std::size_t prefix = 0;  // bytes of relative_ that are this folder with its '/'
    bool whole = false;      // everything below matches the pattern
    FileIdentity identity;
    std::string_view name(const Entry& entry) const {
      return std::string_view(names).substr(entry.offset, entry.length);
    }
  };

  void enter(bool whole);
  void list(int descriptor, Level& level);
  void consider(std::string_view name, unsigned char type, Level& level);
  bool takes_file(std::string_view name, bool whole);
  bool resolve(std::string_view name, bool whole);
  void enter_folder(bool whole);
  bool in_pattern(bool whole) const { return whole || !options_.pattern || options_.pattern->matches(relative_); }
  std::string full_path() const;

  Options options_;
  ScanCounts& counts_;
  std::stop_token stop_;
  std::string relative_;  // path under consideration, relative to the folder
  std::vector<Level> levels_;
};

}  // namespace millrace
