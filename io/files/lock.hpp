#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "io/files/files.hpp"

namespace millrace {

/// Who writes to an output folder.
struct LockHolder {
  std::int64_t pid = 0;
  std::int64_t start_ticks = 0;  ///< when the process started, in clock ticks after boot: tells a reused pid apart
  std::string host, boot_id;
  std::string started;  ///< when the lock was taken, UTC, for people

  /// "process 4711 on host mill3, since 2026-11-21T05:49:00Z"
  std::string describe() const;
};

/// This process on this host, at this moment.
LockHolder this_process();

/// Another run writes to this output folder; exit code 7.
class LockedError : public std::runtime_error {
 public:
  LockedError(const std::string& path, LockHolder holder, const std::string& advice);
  const LockHolder& holder() const { return holder_; }

 private:
  LockHolder holder_;
};

/// The right to write to an output folder, from construction to destruction: `<folder>/lock.json` under flock(2).
/// A lock whose process is gone from this host, or that was taken before this host's last boot, is taken over. A lock
/// of another host is respected always, since nothing tells from here whether its run is alive.
class FolderLock {
 public:
  /// Throws LockedError if another run has the folder, StorageError if the folder is not there or not writable.
  explicit FolderLock(const std::string& folder, const LockHolder& self = this_process());
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

  /// The line to log when a dead run's lock was taken over.
  const std::optional<std::string>& note() const { return note_; }

 private:
  std::string path_;
  File file_;
  std::optional<std::string> note_;
};

/// Who has the folder now: nobody if there is no lock, or if its process is gone from this host. Takes no lock.
std::optional<LockHolder> lock_holder(const std::string& folder, const LockHolder& self = this_process());

}  // namespace millrace
