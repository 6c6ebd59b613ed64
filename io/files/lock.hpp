#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "io/files/files.hpp"

namespace millrace {

/// The process that writes to an output folder.
struct LockHolder {
  std::int64_t pid = 0;
  std::int64_t start_ticks =
      0;  ///< start of the process in clock ticks after boot: shows if another process has its pid now
  std::string host, boot_id;
  std::string started;  ///< when the lock was taken, UTC, for people

  /// "process 4711 on host mill3, since 2026-11-21T05:49:00Z"
  std::string describe() const;
};

/// This process on this host, at this moment.
LockHolder this_process();

/// Another process writes to this output folder; exit code 7.
class LockedError : public std::runtime_error {
 public:
  LockedError(const std::string& path, LockHolder holder, const std::string& advice);
  const LockHolder& holder() const { return holder_; }

 private:
  LockHolder holder_;
};

/// The right to write to an output folder, from construction to destruction: `<folder>/lock.json` under flock(2).
/// It takes over a lock whose process on this host has ended, or that is older than this host's last boot.
/// It always respects a lock of another host, because this host cannot know whether that run is alive.
class FolderLock {
 public:
  /// Throws LockedError if another process has the folder.
  /// Throws StorageError if the folder does not exist or is not writable.
  explicit FolderLock(const std::string& folder, const LockHolder& self = this_process());
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

  /// The line to log if the lock of a dead run was taken over.
  const std::optional<std::string>& note() const { return note_; }

 private:
  std::string path_;
  File file_;
  std::optional<std::string> note_;
};

/// The process that has the folder; nothing if there is no lock, or if its process on this host has ended.
/// Takes no lock.
std::optional<LockHolder> lock_holder(const std::string& folder, const LockHolder& self = this_process());

}  // namespace millrace
