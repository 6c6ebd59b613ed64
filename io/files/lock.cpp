#include "io/files/lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/json.hpp"

namespace millrace {
namespace {

/// Our records have some 200 bytes. A longer file is not one of them.
constexpr std::int64_t record_limit_bytes = 64 << 10;

std::string path_of(const std::string& folder) { return folder + "/lock.json"; }

/// Field 22 of /proc/<pid>/stat; 0 if the process does not exist.
std::int64_t start_ticks_of(std::int64_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(stat, text, '\0');
  // The second field is the command in parentheses. It may contain spaces and parentheses itself.
  const std::size_t command_end = text.rfind(')');
  if (command_end == std::string::npos) return 0;
  std::istringstream rest(text.substr(command_end + 1));
  std::string field;
  // Fields 1 and 2, pid and command, precede the text in `rest`.
  constexpr int fields_before = 22 - 2;
  for (int i = 0; i < fields_before; ++i) rest >> field;
  return rest ? std::stoll(field) : 0;
}

std::string to_text(const LockHolder& holder) {
  return nlohmann::ordered_json{{"pid", holder.pid},
                                {"host", holder.host},
                                {"boot_id", holder.boot_id},
                                {"start_ticks", holder.start_ticks},
                                {"started", holder.started}}
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

/// Nothing for an incomplete record: a run that is killed while it writes the record leaves one.
std::optional<LockHolder> from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  try {
    return LockHolder{json.at("pid").get<std::int64_t>(), json.at("start_ticks").get<std::int64_t>(),
                      json.at("host").get<std::string>(), json.at("boot_id").get<std::string>(),
                      json.at("started").get<std::string>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

bool is_gone(const LockHolder& holder, const LockHolder& self) {
  // This host cannot see the processes of another one.
  if (holder.host != self.host) return false;
  if (holder.boot_id != self.boot_id) return true;
  // Another process may have the pid now. Only the start time shows that.
  const std::int64_t ticks = start_ticks_of(holder.pid);
  return ticks == 0 || ticks != holder.start_ticks;
}

std::string read_record(const File& file) {
  std::string text(static_cast<std::size_t>(std::min(file.size(), record_limit_bytes)), '\0');
  text.resize(file.read_at(text, 0));
  return text;
}

/// True if the path still names this file. False if `file` is a lock that its owner has just removed.
bool is_current(const File& file) {
  struct stat opened {};
  struct stat named {};
  return ::fstat(file.descriptor(), &opened) == 0 && ::stat(file.path().c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

std::string LockHolder::describe() const {
  if (pid == 0) return "a process that is just starting";
  return "process " + std::to_string(pid) + " on host " + host + ", since " + started;
}

LockHolder this_process() {
  LockHolder self;
  self.pid = ::getpid();
  self.start_ticks = start_ticks_of(self.pid);
  std::array<char, HOST_NAME_MAX + 1> name{};
  if (::gethostname(name.data(), name.size() - 1) == 0) self.host = name.data();
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::getline(boot, self.boot_id);
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  self.started = text.data();
  return self;
}

LockedError::LockedError(const std::string& path, LockHolder holder, const std::string& advice)
    : std::runtime_error("another process writes to this folder: " + holder.describe() + " (" + path + "); " + advice),
      holder_(std::move(holder)) {}

FolderLock::FolderLock(const std::string& folder, const LockHolder& self) : path_(path_of(folder)) {
  const std::string wait = "wait for it to end, or choose another output folder";
  // Begins again if the file that it opened is no longer the lock.
  for (;;) {
    File file(path_, O_RDWR | O_CREAT | O_NOFOLLOW);
    const int result = ::flock(file.descriptor(), LOCK_EX | LOCK_NB);
    const int error_number = errno;
    const std::string record = read_record(file);
    const std::optional<LockHolder> holder = from_text(record);
    if (result != 0 && error_number == EWOULDBLOCK) throw LockedError(path_, holder.value_or(LockHolder{}), wait);
    // Some network file systems have no flock. There the record alone decides.
    if (result != 0 && error_number != ENOLCK && error_number != EOPNOTSUPP) {
      throw StorageError("lock", path_, error_number);
    }
    // The owner removed the file between our open and flock, so this is no lock any more.
    if (!is_current(file)) continue;
    // Some network file systems keep flocks on each host alone. So the record counts too.
    if (holder && !is_gone(*holder, self)) {
      throw LockedError(path_, *holder,
                        holder->host == self.host ? wait : wait + "; if that run is dead, delete the lock file");
    }
    if (!record.empty()) {
      note_ = "took over the lock of the output folder from " +
              (holder ? holder->describe() : std::string("a run that was killed while it took the lock")) +
              ", which has ended";
    }
    // In place: a renamed file would be another inode, which this flock does not cover.
    file.truncate(0);
    file.write_all(to_text(self));
    file.sync();
    file_ = std::move(file);
    return;
  }
}

FolderLock::~FolderLock() {
  // Removed before closing unlocks it: whoever opened the file in the meantime sees that it is not current.
  if (is_current(file_)) ::unlink(path_.c_str());
}

std::optional<LockHolder> lock_holder(const std::string& folder, const LockHolder& self) {
  try {
    auto holder = from_text(read_text_file(path_of(folder), record_limit_bytes));
    if (holder && is_gone(*holder, self)) return std::nullopt;
    return holder;
  } catch (const StorageError& error) {
    if (error.error_number() == ENOENT) return std::nullopt;
    throw;
  }
}

}  // namespace millrace
