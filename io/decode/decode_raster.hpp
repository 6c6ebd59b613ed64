#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "io/decode/decode.hpp"

namespace millrace {

/// Width and height as in the file, before orientation.
struct FileSize {
  int width = 0, height = 0;
};

/// The size in the file, computed from the displayed size.
FileSize file_size_of(const PictureInfo& info);

/// Fills in the displayed size, the reduction and the raster of a picture with this size in the file.
/// `info.orientation` must be set. Throws PictureError (too_large, corrupt_data).
void plan_raster(PictureInfo& info, FileSize file, const DecodeLimits& limits);

/// Throws PictureError (too_large) if info.working_bytes is above the limit.
/// `what` names the need in the message, e.g. "the coefficients of a JPEG in several scans".
void check_working_bytes(const PictureInfo& info, const DecodeLimits& limits, const char* what);

/// Turns the rows of a file, given from top to bottom, into the display raster.
/// It applies the orientation and averages whole blocks of pixels.
/// Blocks start at the upper left corner of the display, so a mean never depends on how the camera was held.
class Raster {
 public:
  /// Maximum number of rows that may be filled before they are committed.
  static constexpr int strip_rows = 16;

  /// `out` has info.pixel_bytes bytes and must outlive the object.
  Raster(const PictureInfo& info, std::uint8_t* out);

  /// Whether rows of the file are rows of the raster. Then row() points into the raster and takes rows in any order.
  bool direct() const { return direct_; }

  /// Where row `y` of the file goes: 3 x file width bytes.
  /// If not direct(), `y` must be one of the strip_rows rows after the last commit.
  std::uint8_t* row(int y);

  /// Puts the rows before `end` into the raster; these are at most strip_rows more than before.
  void commit(int end);

 private:
  void reduce(const std::uint8_t* row);
  void put_rows(const std::uint8_t* rows, std::size_t stride, int first, int count);

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
