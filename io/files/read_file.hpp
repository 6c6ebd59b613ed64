#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <sys/types.h>
#include <unistd.h>

#include "io/files/decode_error.hpp"

namespace millrace {

/// What the plan says about a file, and the maximum size.
struct FileExpectations {
  std::optional<std::int64_t> bytes{};
  std::optional<std::int64_t> mtime_ns{};  ///< compared only for equality
  std::int64_t max_bytes = 1LL << 30;
};

/// The content of a file.
struct FileBytes {
  std::unique_ptr<std::uint8_t[]> data;
  std::size_t size = 0;
  std::int64_t mtime_ns = 0;

  std::span<const std::uint8_t> span() const { return {data.get(), size}; }
};

/// read(2), or its replacement in a test.
using ReadCall = std::function<ssize_t(int descriptor, void* to, std::size_t count)>;

/// Reads a whole regular file into memory that is not cleared first. Never waits for the writer of a pipe.
/// Retries once from the start after EIO or ESTALE.
/// Throws PictureError:
/// - vanished, also for a link that dangles or loops
/// - permission, not_regular, empty, too_large
/// - changed_since_plan, also if the file changes while it is read
/// - io_error, oom_host
FileBytes read_file(const std::string& path, const FileExpectations& expected, const ReadCall& read_call = ::read);

/// A regular file that is open for reading, for callers that read parts of it. The destructor closes it.
class OpenFile {
 public:
  /// Throws PictureError as read_file(), except those of reading and memory.
  OpenFile(const std::string& path, const FileExpectations& expected);
  OpenFile(OpenFile&& other) noexcept;
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile();
  int descriptor() const { return descriptor_; }
  /// Gives the descriptor to the caller, who closes it.
  int release();

 private:
  int descriptor_ = -1;
};

/// Reads bytes [begin, begin + count) of an open file. Throws PictureError: io_error, or truncated if the file ends.
void read_bytes_at(int descriptor, std::int64_t begin, std::size_t count, void* to);

}  // namespace millrace
