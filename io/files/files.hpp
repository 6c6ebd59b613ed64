#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

struct XXH3_state_s;

namespace millrace {

/// Storage failed: what was tried, where, the system's error and what to do. The run ends with exit code 6 and can be
/// resumed.
class StorageError : public std::runtime_error {
 public:
  /// `hint` replaces the advice that follows from the error number.
  StorageError(std::string operation, std::string path, int error_number, const std::string& hint = {});
  int error_number() const { return error_number_; }
  const std::string& path() const { return path_; }
  const std::string& operation() const { return operation_; }

 private:
  int error_number_;
  std::string path_, operation_;
};

/// The system's file calls, one function each with the results and errno of its namesake, so that a test can stand in
/// for any of them. It has no state; a substitute has to outlive the files that use it.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  virtual int open(const std::string& path, int flags, mode_t mode) const;
  virtual int close(int descriptor) const;
  virtual ssize_t write(int descriptor, const void* data, std::size_t bytes) const;
  virtual ssize_t pread(int descriptor, void* data, std::size_t bytes, off_t offset) const;
  virtual int fsync(int descriptor) const;
  virtual int fdatasync(int descriptor) const;
  virtual int syncfs(int descriptor) const;
  virtual int ftruncate(int descriptor, off_t size) const;
  virtual int fstat(int descriptor, struct stat* status) const;
  virtual int rename(const std::string& from, const std::string& to) const;
  virtual int unlink(const std::string& path) const;
  virtual int mkdir(const std::string& path, mode_t mode) const;
  /// Names in a folder without "." and "..", in no order; -1 and errno on failure.
  virtual int list(const std::string& folder, std::vector<std::string>& names) const;
};

/// The operating system itself.
inline const FileSystem real_files{};

/// One open file. Every failing call throws StorageError; the destructor closes and says nothing.
class File {
 public:
  File() = default;
  /// Flags as for open(2) (O_CLOEXEC is added); new files get mode 0666 less the umask.
  File(std::string path, int flags, const FileSystem& files = real_files);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }

  /// Writes all bytes: interrupted and short writes go on where they stopped.
  void write_all(std::string_view bytes);
  /// Reads up to buffer.size() bytes from `offset`; fewer only at the end of the file.
  std::size_t read_at(std::span<char> buffer, std::int64_t offset) const;
  /// fsync and fdatasync. A failure is final: the kernel may have dropped the pages, so a second call that succeeds
  /// would prove nothing, and this file refuses to be written or synced again.
  void sync();
  void sync_data();
  void truncate(std::int64_t size);
  std::int64_t size() const;
  /// False when the file was deleted while it was open.
  bool still_linked() const;
  /// Closes and reports a failure, which some file systems give only here.
  void close();

 private:
  [[noreturn]] void fail(const char* operation, std::int64_t bytes_wanted = 0) const;
  void refuse_after_failed_sync() const;

  const FileSystem* files_ = &real_files;
  std::string path_;
  int descriptor_ = -1;
  bool sync_failed_ = false;
};

/// A file written aside as `.tmp-<name>` in its own folder, which takes its name only when complete. Destroyed before
/// commit() it removes what it wrote.
class AsideFile {
 public:
  AsideFile(const std::string& folder, const std::string& name, const FileSystem& files = real_files);
  AsideFile(const AsideFile&) = delete;
  AsideFile& operator=(const AsideFile&) = delete;
  ~AsideFile();

  void write(std::string_view bytes) { file_.write_all(bytes); }
  /// fsync, close, rename, fsync of the folder: after it the file survives a power cut.
  void commit();

 private:
  const FileSystem& files_;
  std::string folder_, aside_, final_;
  File file_;
  bool renamed_ = false;
};

/// Writes a whole small file by way of AsideFile: whoever finds `name` finds it complete.
void write_durably(const std::string& folder, const std::string& name, std::string_view bytes,
                   const FileSystem& files = real_files);

/// Makes the names in a folder durable. File systems that cannot do it for folders (EINVAL) are let pass.
void sync_folder(const std::string& folder, const FileSystem& files = real_files);

/// Creates a folder (its parent must exist) if it is not there yet.
void make_folder(const std::string& folder, const FileSystem& files = real_files);

/// Removes the `.tmp-*` files that a killed run left in a folder; returns how many.
int remove_stale_temporaries(const std::string& folder, const FileSystem& files = real_files);

/// Names in a folder, sorted by bytes.
std::vector<std::string> list_folder(const std::string& folder, const FileSystem& files = real_files);

/// Deletes a file; not being there is no error.
void remove_file(const std::string& path, const FileSystem& files = real_files);

bool file_exists(const std::string& path, const FileSystem& files = real_files);

/// The whole of a regular file of at most `limit_bytes`; a larger one is a StorageError with EFBIG.
std::string read_text_file(const std::string& path, std::int64_t limit_bytes, const FileSystem& files = real_files);

/// XXH3 with 64 bits over a stream of bytes; the hash of segments and plans.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;
  void add(std::string_view bytes);
  /// 16 lower-case hex digits of what was added so far.
  std::string hex() const;

 private:
  XXH3_state_s* state_;
};

std::string xxh3_64_hex(std::string_view bytes);
std::string xxh3_64_file_hex(const std::string& path, const FileSystem& files = real_files);

/// SHA-256 as 64 lower-case hex digits (OpenSSL); the hash of model packages.
std::string sha256_hex(std::string_view bytes);
std::string sha256_file_hex(const std::string& path, const FileSystem& files = real_files);

/// XXH32: the check of one journal line.
std::uint32_t xxh32(std::string_view bytes);

}  // namespace millrace
