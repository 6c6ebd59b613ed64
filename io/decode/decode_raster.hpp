#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "io/decode/decode.hpp"

namespace millrace {

/// Width and height as they stand in the file, before orientation.
struct FileSize {
  int width = 0, height = 0;
};

/// The size in the file of a picture whose display size is known.
FileSize file_size_of(const PictureInfo& info);

/// Fills in display size, reduction and raster of a picture of that size in the file; throws PictureError (too_large,
/// corrupt_data).
void plan_raster(PictureInfo& info, FileSize file, const DecodeLimits& limits);

/// Checks info.working_bytes against the limit; `what` names the need, e.g. "the coefficients of a progressive JPEG".
void check_working_bytes(const PictureInfo& info, const DecodeLimits& limits, const char* what);

/// Turns the rows of a file, as they come from top to bottom, into the display raster: whole-number area averaging and
/// orientation. Blocks start at the display's upper left corner, whatever the orientation, so a mean never depends on
/// how the camera was held.
class Raster {
 public:
  /// Rows that may be filled before they are committed.
  static constexpr int strip_rows = 16;

  Raster(const PictureInfo& info, std::uint8_t* out);

  /// Whether rows of the file are rows of the raster: then `row` points into the raster, and may be asked for in any
  /// order.
  bool direct() const { return direct_; }

  /// Where row `y` of the file goes, 3 x file width bytes. Not direct: y within strip_rows of the last commit.
  std::uint8_t* row(int y);

  /// Takes the rows up to `end` (exclusive), at most strip_rows more than before.
  void commit(int end);

 private:
  void reduce(const std::uint8_t* row);
  void place(const std::uint8_t* rows, std::size_t stride, int first, int count);

  FileSize file_, reduced_;  // in file orientation
  int reduction_;
  bool flip_x_, flip_y_, swap_, direct_;
  std::size_t out_stride_;
  std::uint8_t* out_;
  int committed_ = 0;
  int block_row_ = 0, block_rows_seen_ = 0;
  std::unique_ptr<std::uint8_t[]> strip_;
  std::vector<std::uint64_t> sums_;
  std::vector<std::uint8_t> mean_row_;
};

}  // namespace millrace
