#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>

#include "io/files/source_names.hpp"
#include "io/input/manifest.hpp"
#include "io/input/scan.hpp"

namespace millrace {

namespace {
constexpr std::size_t block_bytes = 64 << 10;
constexpr auto never = std::chrono::nanoseconds::max();
}  // namespace

LineReader::LineReader(const std::string& path, Options options)
    : options_(std::move(options)), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)), owned_(true) {
  if (descriptor_ < 0) throw InputError("cannot read " + options_.name + ": " + std::strerror(errno));
}

LineReader::LineReader(int descriptor, Options options, std::stop_token stop)
    : options_(std::move(options)), descriptor_(descriptor), owned_(false), stop_(std::move(stop)) {
  // A program started without stdin has an empty list.
  // Reading later would be wrong, because the next file that is opened gets this number.
  ended_ = ::fcntl(descriptor_, F_GETFD) < 0 && errno == EBADF;
  if (ended_ || !stop_.stop_possible()) return;
  // poll() cannot wait for a stop token, so a stop makes this descriptor readable.
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) throw InputError("cannot wait for " + options_.name + ": " + std::strerror(errno));
  wake_on_stop_.emplace(stop_, [wake = wake_] {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake, &one, sizeof one);
  });
}

LineReader::~LineReader() {
  // First: the callback writes to `wake_`. reset() waits for one that is running.
  wake_on_stop_.reset();
  if (wake_ >= 0) ::close(wake_);
  if (owned_) ::close(descriptor_);
}

std::string LineReader::where() const { return options_.name + " line " + std::to_string(line_number_); }

bool LineReader::take_line(std::string& line) {
  const std::size_t end = buffer_.find(options_.delimiter, searched_);
  const std::size_t stop = end == std::string::npos ? buffer_.size() : end;
  searched_ = stop;
  const bool complete = end != std::string::npos || (ended_ && stop > start_);
  if (complete || stop - start_ > options_.limit_bytes) ++line_number_;
  if (stop - start_ > options_.limit_bytes) {
    throw InputError(where() + " is longer than " + std::to_string(options_.limit_bytes) +
                     " bytes: check that it is a list (a list separated by NULs needs -0)");
  }
  if (!complete) return false;
  line.assign(buffer_, start_, stop - start_);
  start_ = searched_ = end == std::string::npos ? stop : stop + 1;
  return true;
}

Step LineReader::next(std::string& line) {
  // A pause is told once. After that, the wait has no limit until the next line.
  const auto deadline = options_.idle && !idle_told_ ? options_.idle->clock() + options_.idle->after : never;
  while (!take_line(line)) {
    if (ended_) return Step::end;
    if (options_.idle || wake_ >= 0) {
      const Step step = await(deadline);
      idle_told_ = step == Step::idle;
      if (step != Step::item) return step;
    }
    fill();
  }
  idle_told_ = false;
  return Step::item;
}

/// Waits for bytes until the deadline. Returns `item` if there may be some, `end` if stopped.
Step LineReader::await(std::chrono::nanoseconds deadline) {
  while (true) {
    if (stop_.stop_requested()) return Step::end;
    // poll() ignores a descriptor below 0, so `wake_` may be missing.
    std::array<pollfd, 2> waits{{{descriptor_, POLLIN, 0}, {wake_, POLLIN, 0}}};
    int timeout_ms = -1;
    if (deadline != never) {
      // Rounded up, so that a list is never idle before its time.
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - options_.idle->clock()).count();
      timeout_ms = static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
    }
    const int ready = ::poll(waits.data(), waits.size(), timeout_ms);
    if (ready < 0 && errno != EINTR) throw InputError("cannot wait for " + options_.name + ": " + std::strerror(errno));
    if (stop_.stop_requested()) return Step::end;
    // Also for a closed pipe or an error, which the read will report.
    if (ready > 0 && waits[0].revents != 0) return Step::item;
    if (ready == 0) return Step::idle;
  }
}

void LineReader::fill() {
  buffer_.erase(0, start_);
  searched_ -= start_;
  start_ = 0;
  const std::size_t old = buffer_.size();
  buffer_.resize(old + block_bytes);
  const ssize_t got = ::read(descriptor_, buffer_.data() + old, block_bytes);
  const int error = errno;
  buffer_.resize(old + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  // A descriptor that does not block can have no data after all. The next wait finds out when it has.
  if (got < 0 && (error == EAGAIN || error == EINTR)) return;
  if (got < 0) {
    throw InputError("reading " + options_.name + " failed after line " + std::to_string(line_number_) + ": " +
                     std::strerror(error));
  }
  ended_ = got == 0;
}

}  // namespace millrace
