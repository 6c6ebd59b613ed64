#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// Where the file systems of the outputs differ.
enum class NameRules {
  exact,     ///< names are bytes
  portable,  ///< names that differ in case or form may be one file, and some characters are refused
};

/// Components of the path of a picture's side file below its folder; the last one is the file. The rule, which
/// docs/formats.md describes for users, keeps different pictures apart and never leaves the folder:
/// - the picture's relative path, its extension kept, then `suffix` (".jpg"): a/x.png has a/x.png.jpg;
/// - an absolute path goes below `_root`, and ".." becomes `_up`; "." and doubled slashes vanish;
/// - a real component that looks like one of these, or like a temporary file, gets one more underscore in front, a
/// folder that ends
///   with the suffix one behind;
/// - a component too long for a file system (255 bytes), and with NameRules::portable one with other characters than
/// lower-case
///   letters, digits and "-_.", is cut and gets "~" and 16 digits of its SHA-256.
/// Throws std::invalid_argument for a path without a file name, or with a NUL byte.
std::vector<std::string> side_path(std::string_view picture_path, std::string_view suffix,
                                   NameRules rules = NameRules::exact);

/// The side files of one kind: OUT/overlay, OUT/labels. Calls for different pictures may run at the same time.
class SideFiles {
 public:
  /// Opens OUT/`kind`, creating that folder (OUT itself must exist). Throws StorageError.
  SideFiles(const std::string& output_folder, const std::string& kind, std::string suffix);
  SideFiles(const SideFiles&) = delete;
  SideFiles& operator=(const SideFiles&) = delete;
  ~SideFiles();

  /// Writes the side file of the picture `id`, replacing an earlier one: aside (`.tmp-<id>`) and renamed, so that
  /// whoever finds it finds it whole, but without fsync. Folders on the way are made; links among them are refused, so
  /// that nothing is ever written outside. A temporary file that a killed run left is replaced when the picture has its
  /// turn again. Throws StorageError.
  void write(std::int64_t id, std::string_view picture_path, std::span<const std::uint8_t> content) const;

  /// Whole path of that side file, for messages and tests.
  std::string path_of(std::string_view picture_path) const;

 private:
  std::string folder_, suffix_;
  int descriptor_ = -1;
  NameRules rules_ = NameRules::exact;
};

}  // namespace millrace
