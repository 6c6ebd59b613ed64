#include "io/sinks/side_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <utility>

#include "io/files/files.hpp"

namespace millrace {
namespace {

constexpr std::size_t longest_name = 255;  // NAME_MAX of every file system in use
constexpr std::size_t hash_digits = 16;

/// Makes a real name differ from the names that this file invents.
std::string escape_reserved(std::string_view name, bool is_first) {
  const std::size_t underscores = std::min(name.find_first_not_of('_'), name.size());
  const std::string_view rest = name.substr(underscores);
  const bool reserved =
      rest.starts_with(".tmp-") || (underscores > 0 && (rest == "up" || (is_first && rest == "root")));
  return std::string(reserved ? 1 : 0, '_').append(name);
}

bool is_portable(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
  };
  return std::all_of(name.begin(), name.end(), allowed) && !name.ends_with('.');
}

std::string with_hash(std::string_view name, std::size_t room) {
  std::size_t kept = std::min(name.size(), room - hash_digits - 1);
  // Not within a UTF-8 sequence, so that the name stays readable.
  while (kept > 0 && kept < name.size() && (static_cast<unsigned char>(name[kept]) & 0xC0) == 0x80) --kept;
  return std::string(name.substr(0, kept)) + "~" + sha256_hex(name).substr(0, hash_digits);
}

std::string fit(const std::string& name, std::size_t room, NameRules rules) {
  if (rules == NameRules::exact) return name.size() <= room ? name : with_hash(name, room);
  if (name.size() <= room && is_portable(name)) return name;
  std::string fitted = with_hash(name, room);
  // with_hash() hashes the real name, so two names still differ after this.
  for (char& c : fitted) {
    if (c != '~' && !is_portable(std::string_view(&c, 1)) && c != '.') c = '_';
  }
  return fitted;
}

/// Picture `x` has the side file `x.jpg`, so a folder `x.jpg` must get another name (`x.jpg_`).
/// A folder `x.jpg_` then gets one more underscore, and so on.
std::string fit_folder(std::string name, std::string_view suffix, NameRules rules) {
  const std::size_t end = name.find_last_not_of('_') + 1;
  if (std::string_view(name).substr(0, end).ends_with(suffix)) name += '_';
  return fit(name, longest_name, rules);
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

std::string hint_for(int error_number) {
  if (error_number != ELOOP && error_number != ENOTDIR) return {};
  return "a link or a file has the name of a folder of the output, and links are not followed there: remove it";
}

/// Opens a folder one level down, and creates it if necessary.
Descriptor open_folder(int parent, const std::string& name, const std::string& path) {
  constexpr int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  Descriptor folder(openat(parent, name.c_str(), flags));
  if (folder.get() < 0 && errno == ENOENT) {
    if (mkdirat(parent, name.c_str(), 0777) != 0 && errno != EEXIST) throw StorageError("make the folder", path, errno);
    folder = Descriptor(openat(parent, name.c_str(), flags));
  }
  if (folder.get() < 0) throw StorageError("open the folder", path, errno, hint_for(errno));
  return folder;
}

void write_all(int descriptor, std::span<const std::uint8_t> content, const std::string& path) {
  while (!content.empty()) {
    const ssize_t count = ::write(descriptor, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw StorageError("write", path, errno);
    content = content.subspan(static_cast<std::size_t>(count));
  }
}

/// Whether the file system treats `A` and `a` as the same name.
bool folds_case(int folder) {
  const Descriptor file(openat(folder, ".tmp-case", O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (file.get() < 0) return false;  // the first write will say what is wrong
  struct stat status {};
  const bool found = fstatat(folder, ".tmp-CASE", &status, AT_SYMLINK_NOFOLLOW) == 0;
  unlinkat(folder, ".tmp-case", 0);
  return found;
}

}  // namespace

std::vector<std::string> side_path(std::string_view picture_path, std::string_view suffix, NameRules rules) {
  if (picture_path.find('\0') != std::string_view::npos)
    throw std::invalid_argument("a picture's path contains a NUL byte");
  std::vector<std::string> names;
  if (picture_path.starts_with('/')) names.emplace_back("_root");
  bool names_file = false;
  for (std::size_t begin = 0; begin <= picture_path.size();) {
    const std::size_t end = std::min(picture_path.find('/', begin), picture_path.size());
    const std::string_view name = picture_path.substr(begin, end - begin);
    begin = end + 1;
    if (name.empty() || name == ".") continue;
    names_file = name != "..";
    names.push_back(names_file ? escape_reserved(name, names.empty()) : std::string("_up"));
  }
  if (!names_file) throw std::invalid_argument("the picture's path '" + std::string(picture_path) + "' names no file");
  for (std::size_t i = 0; i + 1 < names.size(); ++i) names[i] = fit_folder(std::move(names[i]), suffix, rules);
  names.back() = fit(names.back(), longest_name - suffix.size(), rules) + std::string(suffix);
  return names;
}

SideFiles::SideFiles(const std::string& output_folder, const std::string& kind, std::string suffix)
    : kind_(kind), folder_(output_folder + "/" + kind), suffix_(std::move(suffix)) {
  const Descriptor output(::open(output_folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (output.get() < 0) throw StorageError("open the folder", output_folder, errno);
  Descriptor folder = open_folder(output.get(), kind, folder_);
  if (folds_case(folder.get())) rules_ = NameRules::portable;
  descriptor_ = folder.release();
}

SideFiles::~SideFiles() { ::close(descriptor_); }

SideFiles::Pending::Pending(Pending&& other) noexcept
    : folder_(std::exchange(other.folder_, -1)),
      file_(std::exchange(other.file_, -1)),
      aside_(std::move(other.aside_)),
      name_(std::move(other.name_)),
      path_(std::move(other.path_)),
      bytes_(other.bytes_) {}

SideFiles::Pending::~Pending() {
  if (file_ >= 0) ::close(file_);
  if (folder_ < 0) return;
  if (!aside_.empty()) unlinkat(folder_, aside_.c_str(), 0);
  ::close(folder_);
}

void SideFiles::Pending::commit() {
  // Network file systems and quotas report some failures only here.
  if (::close(std::exchange(file_, -1)) != 0) throw StorageError("close", path_, errno);
  const std::string last = path_.substr(path_.rfind('/') + 1);
  if (renameat(folder_, aside_.c_str(), folder_, last.c_str()) != 0)
    throw StorageError("rename a file to", path_, errno);
  aside_.clear();
}

std::string SideFiles::Pending::hash() const {
  Xxh3 hash;
  std::vector<char> buffer(std::size_t{1} << 20);
  for (std::int64_t at = 0; at < bytes_;) {
    const ssize_t count = ::pread(file_, buffer.data(), buffer.size(), at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) throw StorageError("read", path_, count == 0 ? EIO : errno);
    hash.add({buffer.data(), static_cast<std::size_t>(count)});
    at += count;
  }
  return hash.hex();
}

SideFiles::Pending SideFiles::begin(std::int64_t id, std::string_view picture_path, const Fill& fill) const {
  const auto names = side_path(picture_path, suffix_, rules_);
  // A copy, because the loop closes each folder when it opens the next.
  Descriptor folder(fcntl(descriptor_, F_DUPFD_CLOEXEC, 0));
  if (folder.get() < 0) throw StorageError("open the folder", folder_, errno);
  Pending pending;
  pending.path_ = folder_;
  pending.name_ = kind_;
  for (std::size_t i = 0; i + 1 < names.size(); ++i) {
    pending.path_ += "/" + names[i];
    pending.name_ += "/" + names[i];
    folder = open_folder(folder.get(), names[i], pending.path_);
  }
  pending.path_ += "/" + names.back();
  pending.name_ += "/" + names.back();
  // The id gives two pictures that are written at the same time different names.
  // And a resumed run replaces what a killed one left under that name.
  const std::string aside = ".tmp-" + std::to_string(id);
  Descriptor file(openat(folder.get(), aside.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (file.get() < 0) throw StorageError("create", pending.path_, errno);
  pending.aside_ = aside;
  pending.file_ = file.release();
  pending.folder_ = folder.release();
  errno = 0;
  try {
    fill(pending.file_);
  } catch (const StorageError&) {
    throw;
  } catch (...) {
    // Libraries that write say little. If the storage is at fault, the run must end, and not only the picture fail.
    const int error = errno;
    if (error == ENOSPC || error == EDQUOT || error == EIO || error == EFBIG)
      throw StorageError("write", pending.path_, error);
    throw;
  }
  struct stat status {};
  if (fstat(pending.file_, &status) != 0) throw StorageError("read the size of", pending.path_, errno);
  pending.bytes_ = status.st_size;
  return pending;
}

SideFiles::Pending SideFiles::begin(std::int64_t id, std::string_view picture_path,
                                    std::span<const std::uint8_t> content) const {
  return begin(id, picture_path, [&](int file) { write_all(file, content, path_of(picture_path)); });
}

void SideFiles::write(std::int64_t id, std::string_view picture_path, std::span<const std::uint8_t> content) const {
  begin(id, picture_path, content).commit();
}

std::string SideFiles::path_of(std::string_view picture_path) const {
  std::string path = folder_;
  for (const auto& name : side_path(picture_path, suffix_, rules_)) path += "/" + name;
  return path;
}

}  // namespace millrace
