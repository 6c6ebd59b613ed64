#include "io/files/lock.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

std::string record(const LockHolder& holder) {
  return "{\"pid\":" + std::to_string(holder.pid) + ",\"host\":\"" + holder.host + "\",\"boot_id\":\"" +
         holder.boot_id + "\",\"start_ticks\":" + std::to_string(holder.start_ticks) + ",\"started\":\"" +
         holder.started + "\"}\n";
}

/// A process id that no process has any more.
std::int64_t dead_pid() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ::waitpid(child, nullptr, 0);
  return child;
}

TEST_CASE("this_process names pid, host, boot and start") {
  const LockHolder self = this_process();
  CHECK(self.pid == ::getpid());
  CHECK(self.start_ticks > 0);
  CHECK(!self.host.empty());
  CHECK(!self.boot_id.empty());
  CHECK(self.started.size() == std::string("2026-11-21T05:49:00Z").size());
}

TEST_CASE("a second run is refused with the process that holds the folder, until the first run ends") {
  const TemporaryFolder folder;
  {
    const FolderLock first(folder.path());
    CHECK(!first.note());
    REQUIRE(lock_holder(folder.path()));
    CHECK(lock_holder(folder.path())->pid == ::getpid());
    try {
      const FolderLock second(folder.path());
      FAIL("two locks hold one folder at the same time");
    } catch (const LockedError& error) {
      const std::string text = error.what();
      CAPTURE(text);
      CHECK(error.holder().pid == ::getpid());
      CHECK(text.find("process " + std::to_string(::getpid())) != std::string::npos);
      CHECK(text.find("host " + this_process().host) != std::string::npos);
      CHECK(text.find("since 20") != std::string::npos);
      CHECK(text.find(folder.path() + "/lock.json") != std::string::npos);
    }
    CHECK(file_exists(folder.path() + "/lock.json"));
  }
  CHECK(!file_exists(folder.path() + "/lock.json"));
  CHECK(!lock_holder(folder.path()));
  const FolderLock third(folder.path());
  CHECK(!third.note());
}

TEST_CASE("the lock of a dead process is taken over with a note") {
  const TemporaryFolder folder;
  const pid_t child = ::fork();
  if (child == 0) {
    const FolderLock lock(folder.path());
    ::_exit(0);  // no destructors, as with kill -9
  }
  ::waitpid(child, nullptr, 0);
  REQUIRE(file_exists(folder.path() + "/lock.json"));
  CHECK(!lock_holder(folder.path()));
  const FolderLock lock(folder.path());
  REQUIRE(lock.note());
  CHECK(lock.note()->find("process " + std::to_string(child)) != std::string::npos);
  CHECK(lock_holder(folder.path())->pid == ::getpid());
}

TEST_CASE("which lock records are stale") {
  const LockHolder self = this_process();
  struct Row {
    const char* what;
    LockHolder holder;
    bool stale;
  };
  std::vector<Row> rows(6, Row{"", self, false});
  rows[0].what = "alive here, lock not visible by flock";
  rows[1].what = "dead here";
  rows[1].holder.pid = dead_pid();
  rows[1].stale = true;
  rows[2].what = "pid used again by another process";
  rows[2].holder.start_ticks -= 1;
  rows[2].stale = true;
  rows[3].what = "before the last boot";
  rows[3].holder.boot_id = "another";
  rows[3].stale = true;
  rows[4].what = "another host";
  rows[4].holder.host = "another-host";
  rows[5].what = "another host, other boot, dead pid";
  rows[5].holder.host = "another-host";
  rows[5].holder.boot_id = "another";
  rows[5].holder.pid = dead_pid();
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const TemporaryFolder folder;
    write_durably(folder.path(), "lock.json", record(row.holder));
    CHECK(lock_holder(folder.path()).has_value() == !row.stale);
    if (row.stale) {
      const FolderLock lock(folder.path());
      CHECK(lock.note());
    } else {
      CHECK_THROWS_AS(FolderLock(folder.path()), LockedError);
      CHECK(read_text_file(folder.path() + "/lock.json", 1000) == record(row.holder));
    }
  }
}

TEST_CASE("the message about a lock of another host says how to remove it") {
  const TemporaryFolder folder;
  LockHolder there = this_process();
  there.host = "mill7";
  write_durably(folder.path(), "lock.json", record(there));
  CHECK_THROWS_WITH_AS(FolderLock(folder.path()), doctest::Contains("on host mill7"), LockedError);
  CHECK_THROWS_WITH_AS(FolderLock(folder.path()), doctest::Contains("delete the lock file"), LockedError);
}

TEST_CASE("a lock record that is cut at any byte is taken over") {
  const std::string whole = record(this_process());
  for (std::size_t length = 0; length + 2 < whole.size(); ++length) {
    const TemporaryFolder folder;
    write_durably(folder.path(), "lock.json", whole.substr(0, length));
    const FolderLock lock(folder.path());
    CHECK(lock.note().has_value() == (length > 0));
  }
}

TEST_CASE("if many threads try at the same time, never two hold the folder") {
  const TemporaryFolder folder;
  std::atomic<int> inside{0}, taken{0}, overlaps{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        try {
          const FolderLock lock(folder.path());
          if (++inside > 1) ++overlaps;
          ++taken;
          std::this_thread::yield();
          --inside;
        } catch (const LockedError&) {
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(overlaps == 0);
  CHECK(taken > 0);
}

TEST_CASE("a lock without its folder is a StorageError") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(FolderLock(folder.path() + "/none"), StorageError);
  CHECK(!lock_holder(folder.path() + "/none"));
}

}  // namespace
}  // namespace millrace
