#include "io/files/read_file.hpp"

#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>

namespace millrace {
namespace {

/// An open file. Errors of close are ignored: a file that was only read cannot lose anything.
/// Not the File of files.hpp: its errors end the run, but here each one is the failure of one picture.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

/// EIO or ESTALE, after which a second try can succeed.
struct Transient {
  int error;
};

[[noreturn]] void fail(int error, const char* action) {
  if (error == EIO || error == ESTALE) throw Transient{error};
  const std::string detail = std::string(action) + " failed: " + std::generic_category().message(error);
  switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
      throw PictureError(
          Reason::vanished,
          "the file is in the plan but does not exist: it was removed, its path in a manifest is wrong, or it "
          "is a link to nothing (" +
              std::generic_category().message(error) + ")");
    case EACCES:
    case EPERM:
      throw PictureError(Reason::permission, "this user may not read the file");
    case ENXIO:  // a socket
    case ENODEV:
      throw PictureError(Reason::not_regular, "not a regular file");
    default:
      throw PictureError(Reason::io_error, detail);
  }
}

std::int64_t mtime_ns(const struct stat& status) {
  return std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

struct stat status_of(const Descriptor& file) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(errno, "fstat");
  return status;
}

void check(const struct stat& status, const FileExpectations& expected) {
  // First, because the size of a pipe or device means nothing.
  if (!S_ISREG(status.st_mode))
    throw PictureError(Reason::not_regular, S_ISDIR(status.st_mode) ? "a folder" : "a pipe, socket or device");
  if (expected.bytes && *expected.bytes != status.st_size) {
    throw PictureError(Reason::changed_since_plan, "the file has " + std::to_string(status.st_size) + " bytes, " +
                                                       std::to_string(*expected.bytes) + " in the plan");
  }
  if (expected.mtime_ns && *expected.mtime_ns != mtime_ns(status)) {
    throw PictureError(Reason::changed_since_plan, "the file was modified after it was planned");
  }
  if (status.st_size == 0) throw PictureError(Reason::empty, "the file has no bytes");
  if (status.st_size > expected.max_bytes) {
    throw PictureError(Reason::too_large, "the file has " + std::to_string(status.st_size) + " bytes; the limit is " +
                                              std::to_string(expected.max_bytes));
  }
}

int open_file(const std::string& path) {
  int opened = -1;
  do {
    // O_NONBLOCK: a pipe without a writer must not hang us.
    // O_NOCTTY: a terminal in a list must not become the terminal of this process.
    opened = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
  } while (opened < 0 && errno == EINTR);
  if (opened < 0) fail(errno, "open");
  return opened;
}

FileBytes read_once(const std::string& path, const FileExpectations& expected, const ReadCall& read_call) {
  const Descriptor file(open_file(path));
  const struct stat before = status_of(file);
  check(before, expected);
  const auto size = static_cast<std::size_t>(before.st_size);
  ::posix_fadvise(file.get(), 0, 0, POSIX_FADV_SEQUENTIAL);

  // Not make_unique: it would write zeros first, and files are large.
  FileBytes result{
      .data = std::unique_ptr<std::uint8_t[]>(new std::uint8_t[size]), .size = size, .mtime_ns = mtime_ns(before)};
  std::size_t done = 0;
  while (done < size) {
    const ssize_t count = read_call(file.get(), result.data.get() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(errno, "read");
    if (count == 0) break;
    done += static_cast<std::size_t>(count);
  }
  // A file that another program is writing could otherwise give half of the old and half of the new picture.
  const struct stat after = status_of(file);
  if (done < size || after.st_size != before.st_size || mtime_ns(after) != mtime_ns(before)) {
    throw PictureError(Reason::changed_since_plan, "the file changed while it was being read");
  }
  return result;
}

}  // namespace

OpenFile::OpenFile(const std::string& path, const FileExpectations& expected) {
  const auto open = [&] {
    Descriptor file(open_file(path));
    check(status_of(file), expected);
    descriptor_ = file.release();
  };
  try {
    try {
      open();
    } catch (const Transient&) {
      open();
    }
  } catch (const Transient& transient) {
    throw PictureError(Reason::io_error, "opening failed twice: " + std::generic_category().message(transient.error));
  }
}

OpenFile::OpenFile(OpenFile&& other) noexcept : descriptor_(other.release()) {}

OpenFile::~OpenFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int OpenFile::release() { return std::exchange(descriptor_, -1); }

FileBytes read_file(const std::string& path, const FileExpectations& expected, const ReadCall& read_call) {
  try {
    try {
      return read_once(path, expected, read_call);
    } catch (const Transient&) {
      // The file is opened again, because ESTALE means that the open one is lost.
      return read_once(path, expected, read_call);
    }
  } catch (const Transient& transient) {
    throw PictureError(Reason::io_error, "reading failed twice: " + std::generic_category().message(transient.error));
  } catch (const std::bad_alloc&) {
    throw PictureError(Reason::oom_host, "no host memory for the file");
  }
}

void read_bytes_at(int descriptor, std::int64_t begin, std::size_t count, void* to) {
  for (std::size_t done = 0; done < count;) {
    const ssize_t got =
        ::pread(descriptor, static_cast<char*>(to) + done, count - done, begin + static_cast<std::int64_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw PictureError(Reason::io_error, "read failed: " + std::generic_category().message(errno));
    if (got == 0) throw PictureError(Reason::truncated, "it ends early");
    done += static_cast<std::size_t>(got);
  }
}

}  // namespace millrace
