#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/decode/decode.hpp"
#include "stages/batch.hpp"

namespace millrace {

class PixelCache;

/// Reads the files of frames, and their headers. From many threads at once.
class Reader {
 public:
  /// `limits` are those of each view; `cache` is null, or has the pixels of pictures that came before: their files are
  /// not read again.
  Reader(std::string input_root, std::vector<DecodeLimits> limits, std::int64_t max_file_bytes,
         PixelCache* cache = nullptr)
      : input_root_(std::move(input_root)),
        limits_(std::move(limits)),
        max_file_bytes_(max_file_bytes),
        cache_(cache) {}

  /// What reading this frame's file takes, before it is read; 0 where nobody knows.
  std::int64_t file_bytes(const Frame& frame) const;

  /// Sets Frame::file and Frame::info. Throws PictureError.
  void read(Frame& frame);

  /// So far.
  std::int64_t read_bytes() const { return read_bytes_; }

 private:
  const std::string input_root_;
  const std::vector<DecodeLimits> limits_;
  const std::int64_t max_file_bytes_;
  PixelCache* const cache_;
  std::atomic<std::int64_t> read_bytes_{0};
};

}  // namespace millrace
