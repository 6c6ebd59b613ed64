#include "io/results/run_folder.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <compare>
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

struct Order {
  std::string_view time;
  int number = 0;
  auto operator<=>(const Order&) const = default;
};

/// The order of attempts: "20260101T000000Z-10" is newer than "20260101T000000Z-9".
Order order_of(const std::string& name) {
  const auto dash = name.rfind('-');
  if (dash == std::string::npos) return {name, 0};
  int n = 0;
  std::from_chars(name.data() + dash + 1, name.data() + name.size(), n);
  return {std::string_view(name).substr(0, dash), n};
}

std::string make_run_folder(const std::string& out_folder, std::string name) {
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
  // Attempts have the order of their names, also after the clock was set back.
  constexpr int many = 1'000'000'000;  // only a folder that the program did not make has such a number
  int n = 1;
  const auto earlier = attempts_of(out_folder);
  if (const auto last = earlier.empty() ? Order{} : order_of(earlier.back()); last.time >= name && last.number < many) {
    name = last.time;
    n = last.number + 1;
  }
  // Another attempt may start in the same second.
  for (;; ++n) {
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

bool is_attempt_name(const std::string& name) {
  return name.find("Z-") != std::string::npos && name.find_first_not_of("0123456789TZ-") == std::string::npos;
}

std::vector<std::string> attempts_of(const std::string& output) {
  std::vector<std::string> names;
  std::error_code error;
  const std::filesystem::directory_iterator entries(output + "/runs", error);
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw StorageError("list", output + "/runs", error.value());
  for (const auto& entry : entries) {
    // Copies of attempts, and folders of the file system, have other names.
    const std::string name = entry.path().filename().string();
    if (!is_attempt_name(name)) continue;
    if (entry.is_directory(error)) names.push_back(name);
  }
  std::ranges::sort(names, {}, order_of);
  return names;
}

RunFolder::RunFolder(const std::string& out_folder, std::chrono::system_clock::time_point start)
    : path_(make_run_folder(out_folder, utc_name(start))),
      errors_(path_ + "/errors.jsonl", O_WRONLY | O_CREAT | O_EXCL | O_APPEND) {}

void RunFolder::add_error(std::string_view json) {
  if (json.find('\n') != std::string_view::npos) throw std::invalid_argument("an errors.jsonl line with a newline");
  errors_.write_all(std::string(json) + "\n");
}

}  // namespace millrace
