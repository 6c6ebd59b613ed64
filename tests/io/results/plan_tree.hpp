#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace millrace {

/// A folder for one test, in memory if /dev/shm exists. The destructor removes it. Names are bytes.
class TestTree {
 public:
  TestTree() {
    const bool in_memory = ::access("/dev/shm", W_OK | X_OK) == 0;
    std::string name =
        (in_memory ? "/dev/shm" : std::filesystem::temp_directory_path().native()) + "/millrace-plan-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("cannot make a temporary folder");
    root_ = std::filesystem::canonical(name).native();
  }
  TestTree(const TestTree&) = delete;
  TestTree& operator=(const TestTree&) = delete;
  ~TestTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }

  const std::string& root() const { return root_; }
  std::string path(const std::string& name) const { return root_ + "/" + name; }

  std::string file(const std::string& name, const std::string& content = "") const {
    const std::filesystem::path where = path(name);
    std::filesystem::create_directories(where.parent_path());
    std::ofstream out(where, std::ios::binary);
    out << content;
    if (!out.good()) throw std::runtime_error("cannot write " + name);
    return where.native();
  }
  std::string folder(const std::string& name) const {
    std::filesystem::create_directories(path(name));
    return path(name);
  }
  void link(const std::string& target, const std::string& name) const {
    if (::symlink(target.c_str(), path(name).c_str()) != 0) throw std::runtime_error("cannot link " + name);
  }
  std::string text(const std::string& name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::string root_;
};

/// Makes another folder the current one until the end of the scope.
class InFolder {
 public:
  explicit InFolder(const std::string& folder) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(folder);
  }
  InFolder(const InFolder&) = delete;
  InFolder& operator=(const InFolder&) = delete;
  ~InFolder() {
    std::error_code ignored;
    std::filesystem::current_path(before_, ignored);
  }

 private:
  std::filesystem::path before_;
};

}  // namespace millrace
