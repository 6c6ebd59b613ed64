#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// How the file system of the output treats names.
enum class NameRules {
  exact,     ///< names are bytes
  portable,  ///< names that differ in case or form may be one file, and some characters are refused
};

/// Components of the path of a picture's side file below its folder; the last one is the file.
/// Different pictures have different paths, and no path leaves the folder.
/// The rule, which docs/formats.md describes for users:
/// - The picture's relative path with its extension, then `suffix` (".jpg"): a/x.png has a/x.png.jpg.
/// - An absolute path goes below `_root`, and ".." becomes `_up`. "." and doubled slashes vanish.
/// - A real component that looks like one of these, or like a temporary file, gets one more underscore in front.
/// - A folder that ends with the suffix gets an underscore at its end.
/// - A component that is too long for a file system (255 bytes) is cut and gets "~" and 16 digits of its SHA-256.
/// - With NameRules::portable, so does a component with other characters than lower-case letters, digits and "-_.",
///   or with a final dot. Each byte of such a character becomes "_"; the final dot stays.
/// Throws std::invalid_argument for a path without a file name, or with a NUL byte.
std::vector<std::string> side_path(std::string_view picture_path, std::string_view suffix,
                                   NameRules rules = NameRules::exact);

/// The side files of one kind: OUT/overlay or OUT/labels. Threads may write different pictures at the same time.
class SideFiles {
 public:
  /// A side file under its temporary name. Without commit() it vanishes.
  class Pending {
   public:
    Pending(Pending&& other) noexcept;
    Pending& operator=(Pending&&) = delete;
    ~Pending();
    /// Renames it. Throws StorageError.
    void commit();
    std::int64_t bytes() const { return bytes_; }
    /// Relative to the output folder.
    const std::string& name() const { return name_; }
    /// XXH3 of its content, 16 hexadecimal digits.
    std::string hash() const;

   private:
    friend class SideFiles;
    Pending() = default;
    int folder_ = -1, file_ = -1;
    std::string aside_, name_, path_;
    std::int64_t bytes_ = 0;
  };
  /// Fills the file behind a descriptor that is open for reading and writing.
  using Fill = std::function<void(int descriptor)>;

  /// Opens OUT/`kind`, and creates that folder if necessary. OUT itself must exist. Throws StorageError.
  SideFiles(const std::string& output_folder, const std::string& kind, std::string suffix);
  SideFiles(const SideFiles&) = delete;
  SideFiles& operator=(const SideFiles&) = delete;
  ~SideFiles();

  /// Begins the side file of picture `id` with what `fill` writes; commit() of the result replaces an earlier one.
  /// Throws StorageError, and what `fill` throws.
  Pending begin(std::int64_t id, std::string_view picture_path, const Fill& fill) const;
  Pending begin(std::int64_t id, std::string_view picture_path, std::span<const std::uint8_t> content) const;

  /// Writes the side file of picture `id`, replacing an earlier one: writes `.tmp-<id>` and renames it.
  /// So a side file is always whole. There is no fsync; SegmentStoreOptions::sync_side_files makes it durable.
  /// Creates the folders of the path. Refuses links among them, so nothing is ever written outside.
  /// The temporary file of a killed run is replaced when its picture is processed again. Throws StorageError.
  void write(std::int64_t id, std::string_view picture_path, std::span<const std::uint8_t> content) const;

  /// The whole path of that side file, for messages and tests.
  std::string path_of(std::string_view picture_path) const;

 private:
  std::string kind_, folder_, suffix_;
  int descriptor_ = -1;
  NameRules rules_ = NameRules::exact;
};

}  // namespace millrace
