#include "io/files/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <new>
#include <system_error>
#include <utility>

#include "io/files/source_names.hpp"

namespace millrace {
namespace {

/// Bytes of one read while a file is hashed.
constexpr std::size_t chunk_bytes = 1 << 20;

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string free_space(const std::string& path) {
  struct statvfs status {};
  // The file may not exist, because creating it failed: then its folder tells.
  if (::statvfs(path.c_str(), &status) != 0 && ::statvfs(folder_of(path).c_str(), &status) != 0) return {};
  return std::to_string(std::uint64_t{status.f_bavail} * status.f_frsize) + " bytes and " +
         std::to_string(status.f_favail) + " files are free there; ";
}

std::string advice(const std::string& path, int error_number) {
  switch (error_number) {
    case ENOSPC:
      return free_space(path) + "free some space, then run the same command again";
    case EDQUOT:
      return "the disk quota is used up: free some space, then run the same command again";
    case EFBIG:
      return "the file is larger than the limit (ulimit -f) or the file system allows: raise the limit or choose "
             "another output folder";
    case EROFS:
      return "the file system is read-only: choose another output folder or remount it";
    case EACCES:
    case EPERM:
      return "this user lacks the permission: choose another output folder or change its permissions";
    case ENOENT:
      return "it or its folder does not exist, or was deleted during the run: check the path";
    case EMFILE:
    case ENFILE:
      return "too many open files: raise the limit with ulimit -n";
    case EIO:
      return "the disk or its connection failed: check it before running the same command again";
    case ESTALE:
      return "the network file system lost the file: check the mount, then run the same command again";
    default:
      return "repair this, then run the same command again";
  }
}

std::string hex_of(std::span<const unsigned char> bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : bytes) {
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

/// Always 16 digits, because hashes are compared as text.
std::string hex_of(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

void for_each_chunk(const std::string& path, const FileSystem& files,
                    const std::function<void(std::string_view)>& take) {
  const File file(path, O_RDONLY, files);
  std::vector<char> buffer(chunk_bytes);
  std::int64_t offset = 0;
  while (const std::size_t count = file.read_at(buffer, offset)) {
    take({buffer.data(), count});
    offset += static_cast<std::int64_t>(count);
  }
}

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) != 1) throw std::bad_alloc();
  }
  void add(std::string_view bytes) {
    if (EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) != 1) throw std::runtime_error("SHA-256 failed");
  }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int size = 0;
    if (EVP_DigestFinal_ex(context_.get(), digest.data(), &size) != 1) throw std::runtime_error("SHA-256 failed");
    return hex_of(std::span(digest).first(size));
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

StorageError::StorageError(std::string operation, std::string path, int error_number, const std::string& hint)
    : std::runtime_error("cannot " + operation + " '" + display_name(path) +
                         "': " + std::system_category().message(error_number) + "; " +
                         (hint.empty() ? advice(path, error_number) : hint)),
      error_number_(error_number),
      path_(std::move(path)),
      operation_(std::move(operation)) {}

int FileSystem::open(const std::string& path, int flags, mode_t mode) const {
  return ::open(path.c_str(), flags, mode);
}
int FileSystem::close(int descriptor) const { return ::close(descriptor); }
ssize_t FileSystem::write(int descriptor, const void* data, std::size_t bytes) const {
  return ::write(descriptor, data, bytes);
}
ssize_t FileSystem::pread(int descriptor, void* data, std::size_t bytes, off_t offset) const {
  return ::pread(descriptor, data, bytes, offset);
}
int FileSystem::fsync(int descriptor) const { return ::fsync(descriptor); }
int FileSystem::fdatasync(int descriptor) const { return ::fdatasync(descriptor); }
int FileSystem::syncfs(int descriptor) const { return ::syncfs(descriptor); }
int FileSystem::ftruncate(int descriptor, off_t size) const { return ::ftruncate(descriptor, size); }
int FileSystem::fstat(int descriptor, struct stat* status) const { return ::fstat(descriptor, status); }
int FileSystem::rename(const std::string& from, const std::string& to) const {
  return ::rename(from.c_str(), to.c_str());
}
int FileSystem::unlink(const std::string& path) const { return ::unlink(path.c_str()); }
int FileSystem::mkdir(const std::string& path, mode_t mode) const { return ::mkdir(path.c_str(), mode); }

int FileSystem::list(const std::string& folder, std::vector<std::string>& names) const {
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(::opendir(folder.c_str()), ::closedir);
  if (!stream) return -1;
  errno = 0;
  // readdir returns null at the end and after an error: only errno tells which.
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = static_cast<const char*>(entry->d_name);
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  return errno == 0 ? 0 : -1;
}

File::File(std::string path, int flags, const FileSystem& files) : files_(&files), path_(std::move(path)) {
  constexpr mode_t mode = 0666;
  // A signal can interrupt opening a file, for example on a network file system.
  do {
    // O_CLOEXEC: programs that this process starts must not inherit the file or its lock.
    descriptor_ = files.open(path_, flags | O_CLOEXEC, mode);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) fail((flags & O_CREAT) != 0 ? "create" : "open");
}

File::File(File&& other) noexcept
    : files_(other.files_),
      path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      sync_failed_(other.sync_failed_) {}

File& File::operator=(File&& other) noexcept {
  if (this != &other) {
    if (is_open()) files_->close(descriptor_);
    files_ = other.files_;
    path_ = std::move(other.path_);
    descriptor_ = std::exchange(other.descriptor_, -1);
    sync_failed_ = other.sync_failed_;
  }
  return *this;
}

File::~File() {
  if (is_open()) files_->close(descriptor_);
}

void File::fail(const char* operation, std::int64_t bytes_wanted) const {
  const int error_number = errno;
  std::string text = operation;
  if (bytes_wanted > 0) text += " " + std::to_string(bytes_wanted) + " bytes to";
  throw StorageError(text, path_, error_number);
}

void File::refuse_after_failed_sync() const {
  if (sync_failed_) throw StorageError("use", path_, EIO, "an earlier sync failed, so its content is not known");
}

void File::write_all(std::string_view bytes) {
  refuse_after_failed_sync();
  while (!bytes.empty()) {
    const ssize_t count = files_->write(descriptor_, bytes.data(), bytes.size());
    if (count > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      // Without an error, a write of nothing would be repeated for ever.
      if (count == 0) errno = EIO;
      fail("write", static_cast<std::int64_t>(bytes.size()));
    }
  }
}

std::size_t File::read_at(std::span<char> buffer, std::int64_t offset) const {
  std::size_t done = 0;
  while (done < buffer.size()) {
    const auto rest = buffer.subspan(done);
    const ssize_t count = files_->pread(descriptor_, rest.data(), rest.size(), offset + static_cast<off_t>(done));
    if (count == 0) break;
    if (count > 0) {
      done += static_cast<std::size_t>(count);
    } else if (errno != EINTR) {
      fail("read");
    }
  }
  return done;
}

void File::sync() {
  refuse_after_failed_sync();
  if (files_->fsync(descriptor_) == 0) return;
  sync_failed_ = true;
  fail("sync");
}

void File::sync_data() {
  refuse_after_failed_sync();
  if (files_->fdatasync(descriptor_) == 0) return;
  sync_failed_ = true;
  fail("sync");
}

void File::truncate(std::int64_t size) {
  int result = 0;
  do {
    result = files_->ftruncate(descriptor_, size);
  } while (result != 0 && errno == EINTR);
  if (result != 0) fail("shorten");
}

std::int64_t File::size() const {
  struct stat status {};
  if (files_->fstat(descriptor_, &status) != 0) fail("read the status of");
  return status.st_size;
}

bool File::still_linked() const {
  struct stat status {};
  if (files_->fstat(descriptor_, &status) != 0) fail("read the status of");
  return status.st_nlink > 0;
}

void File::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  // Linux frees the descriptor even when it reports EINTR, so a second call could close another file.
  if (descriptor >= 0 && files_->close(descriptor) != 0 && errno != EINTR) fail("close");
}

AtomicFile::AtomicFile(const std::string& folder, const std::string& name, const FileSystem& files)
    : files_(files),
      folder_(folder),
      aside_(folder + "/.tmp-" + name),
      final_(folder + "/" + name),
      // O_TRUNC: a killed run may have left this file. O_NOFOLLOW: a link of that name could lead out of the folder.
      file_(aside_, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, files) {}

AtomicFile::~AtomicFile() {
  // Errors are ignored: the next run removes what stays (remove_stale_temporaries).
  if (!renamed_) files_.unlink(aside_);
}

void AtomicFile::commit() {
  // The content before the name: after a power cut the final name must not show an incomplete file.
  file_.sync();
  file_.close();
  if (files_.rename(aside_, final_) != 0) {
    const int error_number = errno;
    throw StorageError("rename a file to", final_, error_number);
  }
  renamed_ = true;
  // A rename survives a power cut only after the sync of its folder.
  sync_folder(folder_, files_);
}

void write_durably(const std::string& folder, const std::string& name, std::string_view bytes,
                   const FileSystem& files) {
  AtomicFile file(folder, name, files);
  file.write(bytes);
  file.commit();
}

void sync_folder(const std::string& folder, const FileSystem& files) {
  const File file(folder, O_RDONLY | O_DIRECTORY, files);
  if (files.fsync(file.descriptor()) != 0 && errno != EINVAL) {
    const int error_number = errno;
    throw StorageError("sync folder", folder, error_number);
  }
}

void make_folder(const std::string& folder, const FileSystem& files) {
  constexpr mode_t mode = 0777;
  if (files.mkdir(folder, mode) == 0) return sync_folder(folder_of(folder), files);
  const int error_number = errno;
  if (error_number != EEXIST) throw StorageError("make folder", folder, error_number);
}

int remove_stale_temporaries(const std::string& folder, const FileSystem& files) {
  int count = 0;
  for (const std::string& name : list_folder(folder, files)) {
    if (!name.starts_with(".tmp-")) continue;
    remove_file(folder + "/" + name, files);
    ++count;
  }
  return count;
}

std::vector<std::string> list_folder(const std::string& folder, const FileSystem& files) {
  std::vector<std::string> names;
  if (files.list(folder, names) != 0) {
    const int error_number = errno;
    throw StorageError("list folder", folder, error_number);
  }
  // Readers of the folder must not depend on the order of the file system.
  std::sort(names.begin(), names.end());
  return names;
}

void remove_file(const std::string& path, const FileSystem& files) {
  if (files.unlink(path) == 0) return;
  const int error_number = errno;
  // Nothing to remove is as good as removed: a killed run may have come this far.
  if (error_number != ENOENT) throw StorageError("remove", path, error_number);
}

/// Opens the file, so that a file without permission is an error and does not look absent.
bool file_exists(const std::string& path, const FileSystem& files) {
  try {
    const File file(path, O_RDONLY | O_NONBLOCK, files);
    return true;
  } catch (const StorageError& error) {
    if (error.error_number() == ENOENT || error.error_number() == ENOTDIR) return false;
    throw;
  }
}

std::string read_text_file(const std::string& path, std::int64_t limit_bytes, const FileSystem& files) {
  // O_NONBLOCK: opening a pipe must not wait for a writer.
  const File file(path, O_RDONLY | O_NONBLOCK, files);
  struct stat status {};
  if (files.fstat(file.descriptor(), &status) != 0) {
    const int error_number = errno;
    throw StorageError("read the status of", path, error_number);
  }
  if (!S_ISREG(status.st_mode)) throw StorageError("read", path, EINVAL, "it is not a regular file");
  if (status.st_size > limit_bytes) {
    throw StorageError("read", path, EFBIG,
                       "it has " + std::to_string(status.st_size) + " bytes; the maximum for such a file is " +
                           std::to_string(limit_bytes) + " bytes");
  }
  std::string text(static_cast<std::size_t>(status.st_size), '\0');
  // The file may have become shorter since fstat.
  text.resize(file.read_at(text, 0));
  return text;
}

Xxh3::Xxh3() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_);
}
Xxh3::~Xxh3() { XXH3_freeState(state_); }
void Xxh3::add(std::string_view bytes) { XXH3_64bits_update(state_, bytes.data(), bytes.size()); }
std::string Xxh3::hex() const { return hex_of(XXH3_64bits_digest(state_)); }

std::string xxh3_64_hex(std::string_view bytes) { return hex_of(XXH3_64bits(bytes.data(), bytes.size())); }

std::string xxh3_64_file_hex(const std::string& path, const FileSystem& files) {
  Xxh3 hash;
  for_each_chunk(path, files, [&](std::string_view bytes) { hash.add(bytes); });
  return hash.hex();
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.add(bytes);
  return hash.hex();
}

std::string sha256_file_hex(const std::string& path, const FileSystem& files) {
  Sha256 hash;
  for_each_chunk(path, files, [&](std::string_view bytes) { hash.add(bytes); });
  return hash.hex();
}

std::uint32_t xxh32(std::string_view bytes) { return XXH32(bytes.data(), bytes.size(), 0); }

}  // namespace millrace
