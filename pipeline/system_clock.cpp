#include "pipeline/system_clock.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/cores.hpp"

namespace millrace {
namespace {

/// A file of /proc that stays open, because opening it takes as long as reading it.
class OpenFile {
 public:
  explicit OpenFile(const std::string& path) : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  OpenFile(OpenFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  OpenFile& operator=(OpenFile&&) = delete;
  ~OpenFile() {
    if (file_ >= 0) ::close(file_);
  }
  /// Returns the second number of `schedstat`: time on a core, run delay, time slices.
  [[nodiscard]] std::optional<std::int64_t> run_delay_ns() const noexcept {
    std::array<char, 96> text{};
    const auto length = file_ < 0 ? -1 : ::pread(file_, text.data(), text.size(), 0);
    if (length <= 0) return std::nullopt;
    const std::string_view line(text.data(), static_cast<std::size_t>(length));
    const auto space = line.find(' ');
    std::int64_t value = 0;
    if (space == std::string_view::npos) return std::nullopt;
    const auto read = std::from_chars(line.data() + space + 1, line.data() + line.size(), value);
    return read.ec == std::errc() ? std::optional(value) : std::nullopt;
  }

 private:
  int file_;
};

std::int64_t thread_cpu_ns(clockid_t clock) noexcept {
  timespec time{};
  return clock_gettime(clock, &time) == 0 ? std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec : 0;
}

// The kernel's clock of another thread of this process (MAKE_THREAD_CPUCLOCK in its posix-timers).
// pthread_getcpuclockid needs a pthread_t, which the threads of OpenMP do not tell us.
clockid_t clock_of(pid_t thread) noexcept { return static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) | 6U); }

struct Member {
  pid_t thread;
  OpenFile schedstat;
};

/// The files that a thread reads. They belong to one thread, and close when it ends.
struct ThreadFiles {
  std::string proc;  // the folder of the clock that opened them
  std::unique_ptr<OpenFile> own;
  bool has_team = false;
  nlink_t threads = 0;  // of the process, when `team` was listed
  std::vector<Member> team;
  // Times of members that have ended, so that sums never fall.
  CoreTime last;
};

std::string first_line(const std::filesystem::path& file) {
  std::ifstream stream(file);
  std::string line;
  std::getline(stream, line);
  return line;
}

// Lists the other threads with the name of the calling thread, if the number of threads has changed.
void list_team(ThreadFiles& files) {
  const std::string tasks = files.proc + "/self/task";
  struct stat info {};
  if (::stat(tasks.c_str(), &info) != 0 || info.st_nlink == files.threads) return;
  files.threads = info.st_nlink;
  files.team.clear();
  const std::string self = std::to_string(::gettid());
  const std::string name = first_line(tasks + "/" + self + "/comm");
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(tasks, error)) {
    const std::string id = entry.path().filename().string();
    if (id == self || first_line(entry.path() / "comm") != name) continue;
    files.team.push_back({static_cast<pid_t>(std::atoi(id.c_str())), OpenFile(entry.path() / "schedstat")});
  }
}

ThreadFiles& files_of_this_thread(const std::string& proc) {
  // Kept per thread, because opening the files takes longer than reading them.
  thread_local ThreadFiles files;
  if (files.own == nullptr || files.proc != proc) {
    files = {};
    files.proc = proc;
    files.own = std::make_unique<OpenFile>(proc + "/self/task/" + std::to_string(::gettid()) + "/schedstat");
  }
  return files;
}

// Returns the number behind `key` in a file of "key value" lines, or of "key=value" fields.
std::optional<std::int64_t> number_after(const std::string& text, const std::string& key) {
  const auto at = text.find(key);
  if (at == std::string::npos) return std::nullopt;
  std::int64_t value = 0;
  const auto begin = text.data() + at + key.size();
  return std::from_chars(begin, text.data() + text.size(), value).ec == std::errc() ? std::optional(value)
                                                                                    : std::nullopt;
}

std::string whole_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "some avg10=0.06 avg60=0.54 avg300=0.75 total=12095847", in microseconds.
std::optional<std::int64_t> stall_ns(const std::string& file) {
  const auto total_us = number_after(first_line(file), "total=");
  return total_us ? std::optional(*total_us * 1000) : std::nullopt;
}

std::string throttling_file(const std::string& proc, const std::string& mount) {
  for (const std::string& folder : cgroups("cpu", proc, mount)) {
    if (cpu_quota(folder)) return folder + "/cpu.stat";
  }
  return "";
}

}  // namespace

SystemClock::SystemClock(std::string proc, const std::string& cgroup)
    : proc_(std::move(proc)), throttling_(throttling_file(proc_, cgroup)) {}

std::optional<CoreTime> SystemClock::core_time() const noexcept {
  try {
    ThreadFiles& files = files_of_this_thread(proc_);
    const auto waiting = files.own->run_delay_ns();
    if (!waiting) return std::nullopt;
    CoreTime now{thread_cpu_ns(CLOCK_THREAD_CPUTIME_ID), *waiting, 0, 0};
    if (!files.has_team) return now;
    list_team(files);
    for (const Member& member : files.team) {
      now.team_on_core_ns += thread_cpu_ns(clock_of(member.thread));
      now.team_waiting_ns += member.schedstat.run_delay_ns().value_or(0);
    }
    // A member that ends takes its times with it. A sum that falls would look like negative work.
    now.team_on_core_ns = std::max(now.team_on_core_ns, files.last.team_on_core_ns);
    now.team_waiting_ns = std::max(now.team_waiting_ns, files.last.team_waiting_ns);
    files.last = now;
    return now;
  } catch (...) {  // no memory, no more files: the run continues without these figures
    return std::nullopt;
  }
}

void SystemClock::adopt_team() const noexcept {
  try {
    files_of_this_thread(proc_).has_team = true;
  } catch (...) {
    return;
  }
}

MachineTime SystemClock::machine_time() const {
  MachineTime now;
  const auto tick_ns = 1'000'000'000 / sysconf(_SC_CLK_TCK);
  cpu_set_t allowed;
  const bool known = sched_getaffinity(0, sizeof allowed, &allowed) == 0;
  std::ifstream stat(proc_ + "/stat");
  for (std::string line; std::getline(stat, line) && line.starts_with("cpu");) {
    // "cpu0 user nice system idle iowait irq softirq steal guest guest_nice"; the first line is the sum of all.
    std::istringstream fields(line.substr(3));
    int core = 0;
    std::array<std::int64_t, 8> ticks{};
    if (line.starts_with("cpu ") || !(fields >> core)) continue;
    if (known && core < CPU_SETSIZE && !CPU_ISSET(static_cast<std::size_t>(core), &allowed)) continue;
    for (auto& value : ticks) fields >> value;
    const auto [user, nice, system, idle, iowait, irq, softirq, steal] = ticks;
    ++now.cores;
    now.busy_ns = now.busy_ns.value_or(0) + (user + nice + system + irq + softirq) * tick_ns;
    now.stolen_ns = now.stolen_ns.value_or(0) + steal * tick_ns;
  }
  now.cpu_stall_ns = stall_ns(proc_ + "/pressure/cpu");
  now.memory_stall_ns = stall_ns(proc_ + "/pressure/memory");
  now.io_stall_ns = stall_ns(proc_ + "/pressure/io");
  if (!throttling_.empty()) {
    const std::string text = whole_file(throttling_);
    now.throttled_ns = number_after(text, "throttled_time ");  // cgroup v1
    if (const auto us = number_after(text, "throttled_usec ")) now.throttled_ns = *us * 1000;
  }
  return now;
}

}  // namespace millrace
