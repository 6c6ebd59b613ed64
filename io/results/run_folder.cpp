#include "io/results/run_folder.hpp"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <stdexcept>

namespace millrace {
namespace {

std::string utc_name(std::chrono::system_clock::time_point start) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(start);
  std::tm utc{};
  ::gmtime_r(&seconds, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%dT%H%M%SZ", &utc);
  return text.data();
}

std::string make_run_folder(const std::string& out_folder, const std::string& name) {
  constexpr mode_t mode = 0777;
  const std::string runs = out_folder + "/runs";
  make_folder(runs);
  // Removes the files that killed attempts were writing.
  for (const std::string& earlier : list_folder(runs)) {
    std::error_code error;
    if (!std::filesystem::is_directory(std::filesystem::symlink_status(runs + "/" + earlier, error))) continue;
    try {
      remove_stale_temporaries(runs + "/" + earlier);
    } catch (const StorageError&) {  // such as another user's; it disturbs nobody
    }
  }
  // Two attempts may start in the same second.
  for (int n = 1;; ++n) {
    std::string path = runs + "/" + name + "-" + std::to_string(n);
    if (real_files.mkdir(path, mode) == 0) {
      sync_folder(runs);
      return path;
    }
    const int error_number = errno;
    if (error_number != EEXIST) throw StorageError("make folder", path, error_number);
  }
}

}  // namespace

RunFolder::RunFolder(const std::string& out_folder, std::chrono::system_clock::time_point start)
    : path_(make_run_folder(out_folder, utc_name(start))),
      errors_(path_ + "/errors.jsonl", O_WRONLY | O_CREAT | O_EXCL | O_APPEND) {}

void RunFolder::add_error(std::string_view json) {
  if (json.find('\n') != std::string_view::npos) throw std::invalid_argument("an errors.jsonl line with a newline");
  errors_.write_all(std::string(json) + "\n");
}

}  // namespace millrace
