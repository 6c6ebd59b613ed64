#pragma once

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace millrace {

/// A folder that stands for /proc and /sys/fs/cgroup, and is removed at the end.
class ProcFolder {
 public:
  ProcFolder()
      : path_(std::filesystem::temp_directory_path() /
              ("millrace_proc_" + std::to_string(::getpid()) + "_" + next_number())) {
    std::filesystem::create_directories(path_);
  }
  ProcFolder(const ProcFolder&) = delete;
  ProcFolder& operator=(const ProcFolder&) = delete;
  ~ProcFolder() { std::filesystem::remove_all(path_); }
  void write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  // A clock keeps files open, so each folder has a name of its own.
  static std::string next_number() {
    static int number = 0;
    return std::to_string(++number);
  }
  const std::filesystem::path path_;
};

}  // namespace millrace
