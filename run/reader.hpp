#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "io/decode/decode.hpp"
#include "io/files/read_file.hpp"
#include "io/regions/open_region.hpp"
#include "run/setup.hpp"
#include "stages/batch.hpp"

namespace millrace {

class PixelCache;

/// What is read of files that are read in parts.
struct PartsOptions {
  RegionOptions region{};
  std::array<double, 3> spacing_mm{};  ///< Package::spacing_mm
  std::string orientation{};           ///< Package::orientation
};

/// By view, from the options of `decode` and the packages of models that take such files.
std::vector<PartsOptions> parts_options(const std::vector<PlannedView>& views, const Packages& packages,
                                        std::int64_t slab_bytes);

/// Reads the files of frames and their headers. Many threads may use it at once.
class Reader {
 public:
  /// `limits` and `parts` are by view. The files of pictures in `cache` are not read again; it may be null.
  /// `in_parts`: files whose formats allow it are opened as Frame::region, and not read.
  Reader(std::string input_root, std::vector<DecodeLimits> limits, std::vector<PartsOptions> parts,
         std::int64_t max_file_bytes, bool in_parts, PixelCache* cache = nullptr)
      : input_root_(std::move(input_root)),
        limits_(std::move(limits)),
        parts_(std::move(parts)),
        max_file_bytes_(max_file_bytes),
        in_parts_(in_parts),
        cache_(cache) {}

  /// The bytes that read() will hold for this frame; 0 if its size is unknown.
  std::int64_t file_bytes(const Frame& frame) const;

  /// Sets Frame::info, and Frame::file or Frame::region. Throws PictureError.
  void read(Frame& frame);

  /// Bytes of all files so far.
  std::int64_t read_bytes() const { return read_bytes_; }

 private:
  bool open(Frame& frame, FileExpectations expected);

  const std::string input_root_;
  const std::vector<DecodeLimits> limits_;
  const std::vector<PartsOptions> parts_;
  const std::int64_t max_file_bytes_;
  const bool in_parts_;
  PixelCache* const cache_;
  std::atomic<std::int64_t> read_bytes_{0};
};

}  // namespace millrace
