#pragma once

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "io/files/files.hpp"

namespace millrace {

/// MemoryFiles throws this to end the process. It is no std::exception, so the code under test does not catch it.
struct ProcessKilled {};

/// A file system in memory after SQLite's test VFS. It can kill the process or fail with an errno at its N-th
/// operation, and forget unsynced data at a power cut. It records all operations in order.
class MemoryFiles final : public FileSystem {
 public:
  struct Node {
    std::string now, durable;
    int links = 0;
  };
  struct State {
    std::mutex mutex;
    std::map<std::string, std::shared_ptr<Node>> names, durable_names;
    std::set<std::string> folders{"/out"};
    struct Open {
      std::shared_ptr<Node> node;  // null for a folder
      std::string path;
      int flags = 0;
      std::size_t position = 0;
    };
    std::map<int, Open> open;
    int next_descriptor = 1000;
    int operations = 0;
    int kill_at = -1;
    int fail_at = -1;
    int fail_with = EIO;
    bool killed = false;
    std::size_t largest_write = std::size_t(-1);
    int interrupt_every = 0;  // every N-th read or write fails with EINTR
    int calls = 0;
    std::vector<std::string> record;
  };
  std::shared_ptr<State> state = std::make_shared<State>();

  /// Ends the process, but not the machine: written data stays.
  void restart() const {
    state->open.clear();
    state->killed = false;
    state->kill_at = state->fail_at = -1;
    state->operations = 0;
    state->record.clear();
  }

  /// Ends the machine: each name or byte that was not synced may be kept or lost, and the end of a file may be random.
  void cut_power(unsigned seed) const {
    std::mt19937 random(seed);
    std::set<std::string> paths;
    for (const auto& [path, node] : state->names) paths.insert(path);
    for (const auto& [path, node] : state->durable_names) paths.insert(path);
    std::map<std::string, std::shared_ptr<Node>> names;
    for (const std::string& path : paths) {
      const auto& from = random() % 2 == 0 ? state->names : state->durable_names;
      if (const auto found = from.find(path); found != from.end()) names[path] = found->second;
    }
    for (auto& [path, node] : names) {
      node = std::make_shared<Node>(*node);
      if (node->now != node->durable && random() % 2 == 0) {
        const std::size_t kept = std::min(node->durable.size(), node->now.size());
        node->now =
            random() % 2 == 0 ? node->durable : node->now.substr(0, kept + random() % (node->now.size() - kept + 1));
        if (random() % 2 == 0 && node->now.size() > kept) node->now.back() = static_cast<char>(random());
      }
      node->durable = node->now;
      node->links = 1;
    }
    state->names = state->durable_names = names;
    restart();
  }

  int open(const std::string& path, int flags, mode_t /*mode*/) const override {
    const std::scoped_lock lock(state->mutex);
    const bool creates = (flags & O_CREAT) != 0;
    if (creates && !step("create " + path)) return -1;
    if (state->folders.contains(path)) return add({nullptr, path, flags, 0});
    if (!state->folders.contains(path.substr(0, path.rfind('/')))) return error(ENOENT);
    auto found = state->names.find(path);
    if (found == state->names.end()) {
      if (!creates) return error(ENOENT);
      found = state->names.emplace(path, std::make_shared<Node>()).first;
      found->second->links = 1;
    }
    if ((flags & O_TRUNC) != 0 && !state->killed) found->second->now.clear();
    return add({found->second, path, flags, 0});
  }

  int close(int descriptor) const override {
    const std::scoped_lock lock(state->mutex);
    state->open.erase(descriptor);
    // A destructor may call this and must not throw. So the process dies at the next step, which has the same effect.
    ++state->operations;
    if (state->operations == state->fail_at) return error(state->fail_with);
    if (state->operations == state->kill_at) ++state->kill_at;
    return 0;
  }

  ssize_t write(int descriptor, const void* data, std::size_t bytes) const override {
    const std::scoped_lock lock(state->mutex);
    if (interrupted()) return error(EINTR);
    State::Open& file = state->open.at(descriptor);
    std::size_t count = std::min(bytes, state->largest_write);
    const bool dies = state->operations + 1 == state->kill_at;
    const bool fails = state->operations + 1 == state->fail_at;
    if (dies || fails) count /= 2;
    if (!state->killed) {
      if ((file.flags & O_APPEND) != 0) file.position = file.node->now.size();
      if (file.node->now.size() < file.position + count) file.node->now.resize(file.position + count);
      std::memcpy(file.node->now.data() + file.position, data, count);
      file.position += count;
    }
    if (!step("write " + file.path)) return -1;
    return static_cast<ssize_t>(count);
  }

  ssize_t pread(int descriptor, void* data, std::size_t bytes, off_t offset) const override {
    const std::scoped_lock lock(state->mutex);
    if (interrupted()) return error(EINTR);
    const std::string& content = state->open.at(descriptor).node->now;
    const auto begin = std::min(static_cast<std::size_t>(offset), content.size());
    const std::size_t count = std::min({bytes, content.size() - begin, state->largest_write});
    std::memcpy(data, content.data() + begin, count);
    return static_cast<ssize_t>(count);
  }

  int fsync(int descriptor) const override {
    const std::scoped_lock lock(state->mutex);
    const State::Open& file = state->open.at(descriptor);
    if (!step((file.node ? "fsync " : "fsync folder ") + file.path)) return -1;
    if (state->killed) return 0;
    if (file.node) {
      file.node->durable = file.node->now;
      return 0;
    }
    const auto inside = [&](const std::string& path) { return path.substr(0, path.rfind('/')) == file.path; };
    std::erase_if(state->durable_names, [&](const auto& entry) { return inside(entry.first); });
    for (const auto& [path, node] : state->names) {
      if (inside(path)) state->durable_names[path] = node;
    }
    return 0;
  }

  int fdatasync(int descriptor) const override { return fsync(descriptor); }

  int syncfs(int /*descriptor*/) const override {
    const std::scoped_lock lock(state->mutex);
    return step("syncfs") ? 0 : -1;
  }

  int ftruncate(int descriptor, off_t size) const override {
    const std::scoped_lock lock(state->mutex);
    const State::Open& file = state->open.at(descriptor);
    if (!step("truncate " + file.path)) return -1;
    if (!state->killed) file.node->now.resize(static_cast<std::size_t>(size));
    return 0;
  }

  int fstat(int descriptor, struct stat* status) const override {
    const std::scoped_lock lock(state->mutex);
    const State::Open& file = state->open.at(descriptor);
    *status = {};
    status->st_mode = file.node ? S_IFREG : S_IFDIR;
    status->st_size = file.node ? static_cast<off_t>(file.node->now.size()) : 0;
    status->st_nlink = file.node ? static_cast<nlink_t>(file.node->links) : 1;
    return 0;
  }

  int rename(const std::string& from, const std::string& to) const override {
    const std::scoped_lock lock(state->mutex);
    if (!step("rename " + to)) return -1;
    const auto found = state->names.find(from);
    if (found == state->names.end()) return error(ENOENT);
    if (state->killed) return 0;
    if (const auto old = state->names.find(to); old != state->names.end()) --old->second->links;
    state->names[to] = found->second;
    state->names.erase(from);
    return 0;
  }

  int unlink(const std::string& path) const override {
    const std::scoped_lock lock(state->mutex);
    if (!step("unlink " + path)) return -1;
    const auto found = state->names.find(path);
    if (found == state->names.end()) return error(ENOENT);
    if (state->killed) return 0;
    --found->second->links;
    state->names.erase(found);
    return 0;
  }

  int mkdir(const std::string& path, mode_t /*mode*/) const override {
    const std::scoped_lock lock(state->mutex);
    if (state->folders.contains(path)) return error(EEXIST);
    if (!state->folders.contains(path.substr(0, path.rfind('/')))) return error(ENOENT);
    if (!step("mkdir " + path)) return -1;
    state->folders.insert(path);
    return 0;
  }

  int list(const std::string& folder, std::vector<std::string>& names) const override {
    const std::scoped_lock lock(state->mutex);
    if (!state->folders.contains(folder)) return error(ENOENT);
    for (const auto& [path, node] : state->names) {
      if (path.substr(0, path.rfind('/')) == folder) names.push_back(path.substr(path.rfind('/') + 1));
    }
    return 0;
  }

  /// The contents of all files by path.
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> all;
    for (const auto& [path, node] : state->names) all[path] = node->now;
    return all;
  }
  std::string& content(const std::string& path) const { return state->names.at(path)->now; }

 private:
  static int error(int number) {
    errno = number;
    return -1;
  }

  int add(State::Open file) const {
    state->open.emplace(state->next_descriptor, std::move(file));
    return state->next_descriptor++;
  }

  bool interrupted() const { return state->interrupt_every > 0 && ++state->calls % state->interrupt_every == 0; }

  /// Counts an operation that changes something. Returns false and sets errno if the operation must fail.
  bool step(const std::string& what) const {
    if (state->killed) return true;
    ++state->operations;
    if (state->operations == state->kill_at) {
      state->killed = true;
      throw ProcessKilled{};
    }
    if (state->operations == state->fail_at) {
      errno = state->fail_with;
      return false;
    }
    state->record.push_back(what);
    return true;
  }
};

}  // namespace millrace
