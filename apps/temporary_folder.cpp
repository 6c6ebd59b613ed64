#include "apps/temporary_folder.hpp"

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "io/files/files.hpp"

namespace millrace {

namespace fs = std::filesystem;

std::string existing_folder(const std::string& path) {
  fs::path folder = path;
  std::error_code error;
  while (!fs::is_directory(folder, error) && folder.has_relative_path()) folder = folder.parent_path();
  return folder.string();
}

TemporaryFolder::TemporaryFolder(const std::string& folder, const std::string& name)
    : path_((fs::path(folder) / (".tmp-" + name + "-XXXXXX")).string()) {
  if (::mkdtemp(path_.data()) == nullptr) throw StorageError("make a temporary folder", path_, errno);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // the result of the command is complete without it
  fs::remove_all(path_, ignored);
}

}  // namespace millrace
