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

/// The user named an input that cannot be used. The message says what, where, and what to do. Exit code 2.
class InputError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Why something that the scan found is no item. plan/end.json contains the names, so they never change.
enum class Skip {
  other_extension,    ///< a file without the extension of a picture
  hidden,             ///< a name that begins with a dot, also .DS_Store
  system_file,        ///< Thumbs.db, desktop.ini, @eaDir, #recycle, $RECYCLE.BIN, __MACOSX, lost+found
  not_regular,        ///< a pipe, socket or device
  folder_link,        ///< a link to a folder, without follow_dirs
  loop,               ///< a folder that contains itself through a link or mount, or a link that leads to itself
  unreadable_folder,  ///< a folder that could not be listed
  output_folder,      ///< this run's output
  vanished,           ///< removed during the scan
  not_matched,        ///< does not match the glob pattern
  no_view,            ///< matches no view's pattern
};
inline constexpr std::size_t skip_count = 11;

/// The stable name, e.g. "other_extension".
std::string_view to_string(Skip skip);

/// How often something was found, with the first few names as evidence.
struct Tally {
  static constexpr std::size_t names_kept = 10;
  std::int64_t count = 0;
  std::vector<std::string> first;  ///< bytes as the file system has them
  void add(std::string_view path);
};

/// The first three names, printable and shortened: "a.jpg, b.jpg, c.jpg, ...".
std::string names_of(const Tally& tally);

/// Everything that a scan found and that did not become an item.
struct ScanCounts {
  std::array<Tally, skip_count> skipped;
  Tally videos;                   ///< not read yet
  Tally empty_inputs;             ///< of several inputs, those without a picture
  std::int64_t not_selected = 0;  ///< left out by --sample and --every

  Tally& operator[](Skip skip) { return skipped[static_cast<std::size_t>(skip)]; }
  const Tally& operator[](Skip skip) const { return skipped[static_cast<std::size_t>(skip)]; }
  std::int64_t total_skipped() const;
  /// "12 without the extension of a picture (notes.md, ...), 1 video (not read yet: a.mp4)".
  /// Empty if nothing was skipped.
  std::string summary() const;
};

/// The extension in lower case, without its dot; empty if there is none.
std::string extension_of(std::string_view path);
bool is_picture_extension(std::string_view extension);
bool is_video_extension(std::string_view extension);

/// Identifies a file or folder, under any name.
struct FileIdentity {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const FileIdentity&) const = default;
};

/// The order of a depth-first walk that sorts the entries of each folder by bytes: paths are compared name by name.
std::strong_ordering compare_scan_order(std::string_view a, std::string_view b);

/// A depth-first walk over the pictures below a folder, in the order of compare_scan_order().
/// It takes files by extension; their content decides when they are decoded.
/// Of the .dcm files of a folder it gives the first. The others are slices of the same volume.
/// It follows links to files. It follows links to folders only with follow_dirs.
/// One folder is open at a time. Memory holds the entries of the folders on the way down.
/// A folder, a link or a picture takes about 16 bytes and its name.
/// So 10^6 files in one folder need some 40 MB.
class FolderWalk {
 public:
  struct Options {
    std::string folder;           ///< absolute
    std::optional<Glob> pattern;  ///< relative to the folder; a folder that matches is walked whole
    bool follow_dirs = false;
    std::vector<FileIdentity> excluded;  ///< folders never entered, e.g. the output
  };

  /// Throws InputError if the folder itself cannot be listed. `counts` must outlive the walk.
  FolderWalk(Options options, ScanCounts& counts, std::stop_token stop = {});

  /// The next picture's path relative to the folder; false at the end or when stopped.
  /// Throws InputError if the process runs out of descriptors or memory.
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
    std::size_t prefix = 0;   // bytes of relative_ that are this folder with its '/'
    bool whole = false;       // everything below matches the pattern
    bool has_series = false;  // a .dcm file of this folder was given
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
  std::string relative_;  // path that is being looked at, relative to the folder
  std::vector<Level> levels_;
};

}  // namespace millrace
