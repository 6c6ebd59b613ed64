#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include <nlohmann/json_fwd.hpp>

namespace millrace {

/// Small JPEGs of failed pictures, for the page of a report.
///
/// A picture can be damaged on purpose. So limits of its own bound the memory, the pixels and the bytes of each one,
/// and their sum. They count pixels and bytes, not time, so the same files give the same page.
class Thumbnails {
 public:
  /// `root` is the folder from which relative paths start.
  explicit Thumbnails(std::string root) : root_(std::move(root)) {}

  /// The file at `path` as it is now: {"jpeg", "width", "height"}, with the JPEG in base64.
  /// A picture that breaks off is shown as far as it can be decoded, but a progressive JPEG only if it is whole.
  /// A file that cannot be shown gives {"why"} with a sentence for people. Null: the limits are reached.
  nlohmann::json make(const std::string& path);

 private:
  const std::string root_;
  int tried_ = 0;
  std::int64_t file_bytes_ = 0, pixels_ = 0;
};

}  // namespace millrace
