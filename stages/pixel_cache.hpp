#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "io/decode/decode.hpp"

namespace millrace {

/// Decoded pictures by path, for measurements of the stages after decoding (input.source=memory).
/// Thread-safe. It never evicts a picture.
class PixelCache {
 public:
  struct Entry {
    PictureInfo info;
    PixelBuffer pixels;
  };

  [[nodiscard]] std::optional<Entry> find(const std::string& path) const {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(path);
    return found == entries_.end() ? std::nullopt : std::optional(found->second);
  }
  /// Keeps the first entry of a path.
  void put(const std::string& path, Entry entry) {
    const std::lock_guard lock(mutex_);
    entries_.emplace(path, std::move(entry));
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace millrace
