#pragma once

#include <string>

namespace millrace {

/// The nearest folder that exists on the way to `path`.
std::string existing_folder(const std::string& path);

/// A hidden folder, which a scan of an input skips. The destructor removes it with its content.
class TemporaryFolder {
 public:
  /// Makes ".tmp-NAME-XXXXXX" inside `folder`. Throws StorageError.
  TemporaryFolder(const std::string& folder, const std::string& name);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace millrace
