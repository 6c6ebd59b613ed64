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

/// Storage failed. The message says what was tried, where, the system's error and what to do.
/// The run ends with exit code 6 and can be resumed.
class StorageError : public std::runtime_error {
 public:
  /// The message begins: cannot `operation` 'path'.
  /// `hint` replaces the advice that follows from the error number.
  StorageError(std::string operation, std::string path, int error_number, const std::string& hint = {});
  int error_number() const { return error_number_; }
  const std::string& path() const { return path_; }
  const std::string& operation() const { return operation_; }

 private:
  int error_number_;
  std::string path_, operation_;
};

/// The system's file calls: one function for each, with the same results and errno.
/// Tests replace them. The class has no state; a replacement must outlive the files that use it.
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
  /// Names in a folder without "." and "..", in any order; -1 and errno on failure.
  virtual int list(const std::string& folder, std::vector<std::string>& names) const;
};

/// The operating system itself.
inline const FileSystem real_files{};

/// One open file. Every call that fails throws StorageError. The destructor closes without an error.
class File {
 public:
  File() = default;
  /// Flags as for open(2), and O_CLOEXEC. A new file gets mode 0666 without the bits of the umask.
  File(std::string path, int flags, const FileSystem& files = real_files);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }

  /// Writes all bytes. Continues after interrupted and short writes.
  void write_all(std::string_view bytes);
  /// Reads up to buffer.size() bytes from `offset`; fewer only at the end of the file.
  std::size_t read_at(std::span<char> buffer, std::int64_t offset) const;
  /// sync() is fsync, sync_data() is fdatasync.
  /// A failure is final: afterwards this file refuses to be written or synced.
  /// The kernel may have dropped the pages, so a second call could succeed and would prove nothing.
  void sync();
  void sync_data();
  void truncate(std::int64_t size);
  std::int64_t size() const;
  /// False if the file was deleted while it was open.
  bool still_linked() const;
  /// Closes and reports a failure. Some file systems report a failed write only here.
  void close();

 private:
  [[noreturn]] void fail(const char* operation, std::int64_t bytes_wanted = 0) const;
  void refuse_after_failed_sync() const;

  const FileSystem* files_ = &real_files;
  std::string path_;
  int descriptor_ = -1;
  bool sync_failed_ = false;
};

/// A file that is written under the temporary name `.tmp-<name>`, in the folder of `name`.
/// commit() renames it when it is complete. Without commit(), the destructor removes it.
class AtomicFile {
 public:
  AtomicFile(const std::string& folder, const std::string& name, const FileSystem& files = real_files);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  void write(std::string_view bytes) { file_.write_all(bytes); }
  /// fsync, close, rename, fsync of the folder. After it the file survives a power cut.
  void commit();

 private:
  const FileSystem& files_;
  std::string folder_, aside_, final_;
  File file_;
  bool renamed_ = false;
};

/// Writes a whole small file through AtomicFile, so under `name` it is always complete.
void write_durably(const std::string& folder, const std::string& name, std::string_view bytes,
                   const FileSystem& files = real_files);

/// Makes the names in a folder durable. Ignores file systems that cannot sync folders (EINVAL).
void sync_folder(const std::string& folder, const FileSystem& files = real_files);

/// Creates a folder if it does not exist. Its parent must exist.
void make_folder(const std::string& folder, const FileSystem& files = real_files);

/// Removes the `.tmp-*` files that a killed run left in a folder. Returns how many.
int remove_stale_temporaries(const std::string& folder, const FileSystem& files = real_files);

/// Names in a folder, sorted by bytes.
std::vector<std::string> list_folder(const std::string& folder, const FileSystem& files = real_files);

/// Deletes a file. A missing file is no error.
void remove_file(const std::string& path, const FileSystem& files = real_files);

/// Whether a file can be opened for reading. Throws StorageError if it exists but cannot be opened.
bool file_exists(const std::string& path, const FileSystem& files = real_files);

/// The content of a regular file of at most `limit_bytes`. A larger file throws StorageError with EFBIG.
std::string read_text_file(const std::string& path, std::int64_t limit_bytes, const FileSystem& files = real_files);

/// XXH3 with 64 bits over a stream of bytes: for the files in segments/ and for list files.
class Xxh3 {
 public:
  Xxh3();
  ~Xxh3();
  Xxh3(const Xxh3&) = delete;
  Xxh3& operator=(const Xxh3&) = delete;
  void add(std::string_view bytes);
  /// The hash of all bytes added so far, as 16 lower-case hex digits.
  std::string hex() const;

 private:
  XXH3_state_s* state_;
};

std::string xxh3_64_hex(std::string_view bytes);
std::string xxh3_64_file_hex(const std::string& path, const FileSystem& files = real_files);

/// SHA-256 as 64 lower-case hex digits (OpenSSL), for model packages and for plans.
std::string sha256_hex(std::string_view bytes);
std::string sha256_file_hex(const std::string& path, const FileSystem& files = real_files);

/// XXH32, for the check of a journal line.
std::uint32_t xxh32(std::string_view bytes);

}  // namespace millrace
