#include "apps/events.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <ctime>
#include <utility>

#include "apps/format.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "io/files/source_names.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

constexpr std::size_t most_waiting = 1 << 20;
constexpr std::chrono::milliseconds last_wait{1000};

/// "2026-01-31T12:00:00.250Z"
std::string utc_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  const std::time_t seconds = ms / 1000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return format("%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday,
                parts.tm_hour, parts.tm_min, parts.tm_sec, static_cast<int>(ms % 1000));
}

int opened(const std::string& file) {
  struct stat status {};
  const bool exists = ::stat(file.c_str(), &status) == 0;
  if (exists && S_ISDIR(status.st_mode))
    throw UsageError("events.file is '" + display_name(file) + "', which is a folder; name a file in it");
  // A recipe or a picture that follows --events by mistake must not get lines at its end.
  const bool regular = !exists || S_ISREG(status.st_mode);
  if (regular && !file.ends_with(".jsonl") && !file.starts_with("/dev/"))
    throw UsageError("events.file is '" + display_name(file) + "'; the name of a file must end in .jsonl");
  // Without waiting, so that neither the start nor a slow reader of a pipe delays the run.
  constexpr mode_t mode = 0666;
  const int descriptor = ::open(file.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, mode);
  if (descriptor < 0 && errno == ENXIO)
    throw UsageError("events.file is '" + display_name(file) + "', a pipe that nobody reads: start its reader first");
  if (descriptor < 0) throw StorageError("open", file, errno);
  // Events of two runs in one file would look like those of one run.
  if (regular && ::flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    ::close(descriptor);
    throw UsageError("events.file is '" + display_name(file) + "', to which another run writes: name another file");
  }
  return descriptor;
}

}  // namespace

EventLog::EventLog(const std::string& file) : name_(file), descriptor_(opened(file)) {}

EventLog::~EventLog() {
  end_progress();
  const std::lock_guard lock(mutex_);
  const auto end = std::chrono::steady_clock::now() + last_wait;
  while (!waiting_.empty() && error_ == 0) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd reader{descriptor_, POLLOUT, 0};
    if (left.count() <= 0 || ::poll(&reader, 1, static_cast<int>(left.count())) <= 0) break;
    flush();
  }
  ::close(descriptor_);
}

void EventLog::add(const std::string& name, const nlohmann::json& values) {
  const std::lock_guard lock(mutex_);
  nlohmann::ordered_json line{{"event", name}, {"time", utc_now()}};
  for (const auto& [key, value] : values.items()) line[key] = value;
  put(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", name == "ended");
}

void EventLog::begin_progress(std::function<ProgressSample()> sample) {
  window_.add(sample());
  ticker_.emplace("events", std::chrono::seconds(1), [this, sample = std::move(sample)] {
    const ProgressSample now = sample();
    const ProgressSample& before = window_.add(now);
    add("progress", to_json(before, now));
  });
}

void EventLog::end_progress() { ticker_.reset(); }

std::string EventLog::problem() const {
  const std::lock_guard lock(mutex_);
  if (error_ != 0) {
    return "writing events to '" + display_name(name_) + "' failed (" + std::strerror(error_) +
           "), so later ones are missing; the results are not affected";
  }
  if (dropped_in_all_ == 0) return {};
  return "the reader of '" + display_name(name_) + "' was too slow: " + count_of(dropped_in_all_, "event") +
         (dropped_in_all_ == 1 ? " was dropped" : " were dropped");
}

void EventLog::put(const std::string& line, bool last) {
  if (error_ != 0) return;
  flush();
  std::string lines;
  if (dropped_ > 0)
    lines = "{\"event\":\"dropped\",\"time\":\"" + utc_now() + "\",\"events\":" + std::to_string(dropped_) + "}\n";
  lines += line;
  if (!last && waiting_.size() + lines.size() > most_waiting) {
    ++dropped_;
    ++dropped_in_all_;
    return;
  }
  dropped_ = 0;
  waiting_ += lines;
  flush();
}

void EventLog::flush() {
  while (!waiting_.empty() && error_ == 0) {
    const ssize_t written = ::write(descriptor_, waiting_.data(), waiting_.size());
    if (written >= 0) {
      waiting_.erase(0, static_cast<std::size_t>(written));
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != EINTR) {
      error_ = errno;
      waiting_.clear();
    }
  }
}

}  // namespace millrace
