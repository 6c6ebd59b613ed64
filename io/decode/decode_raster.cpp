#include "io/decode/decode_raster.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace millrace {
namespace {

int blocks(int length, int reduction) { return (length + reduction - 1) / reduction; }

std::int64_t rgb_bytes(int width, int height) { return 3LL * width * height; }

/// Pixels in block `index` of an axis, in file order.
/// The short block is the last one on display, so it is the first one if the axis is flipped.
int block_length(int length, int reduction, int index, bool flipped) {
  const int remainder = length % reduction;
  if (remainder == 0) return reduction;
  const int short_block = flipped ? 0 : blocks(length, reduction) - 1;
  return index == short_block ? remainder : reduction;
}

std::string size_text(FileSize file) { return std::to_string(file.width) + " x " + std::to_string(file.height); }

}  // namespace

FileSize file_size_of(const PictureInfo& info) {
  return info.orientation >= 5 ? FileSize{info.height, info.width} : FileSize{info.width, info.height};
}

void plan_raster(PictureInfo& info, FileSize file, const DecodeLimits& limits) {
  if (file.width <= 0 || file.height <= 0)
    throw PictureError(Reason::corrupt_data, "the header says " + size_text(file) + " pixels");
  if (std::max(file.width, file.height) > limits.max_side) {
    throw PictureError(Reason::too_large, "the header says " + size_text(file) +
                                              " pixels; the longest side allowed is " +
                                              std::to_string(limits.max_side));
  }
  const std::int64_t pixels = std::int64_t{file.width} * file.height;
  if (pixels > limits.max_pixels) {
    throw PictureError(Reason::too_large, "the header says " + size_text(file) + " = " + std::to_string(pixels) +
                                              " pixels; the limit is " + std::to_string(limits.max_pixels));
  }
  info.width = info.orientation >= 5 ? file.height : file.width;
  info.height = info.orientation >= 5 ? file.width : file.height;
  info.reduction = 1;
  // The smallest reduction whose raster fits. One pixel always fits, so the loop ends.
  while (rgb_bytes(blocks(info.width, info.reduction), blocks(info.height, info.reduction)) >
         std::max<std::int64_t>(3, limits.slab_bytes)) {
    ++info.reduction;
  }
  info.pixel_width = blocks(info.width, info.reduction);
  info.pixel_height = blocks(info.height, info.reduction);
  info.pixel_bytes = rgb_bytes(info.pixel_width, info.pixel_height);
}

void check_working_bytes(const PictureInfo& info, const DecodeLimits& limits, const char* what) {
  if (info.working_bytes <= limits.working_bytes) return;
  const auto megabytes = [](std::int64_t bytes) { return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MB"; };
  throw PictureError(Reason::too_large,
                     std::string(what) + " of " + std::to_string(info.width) + " x " + std::to_string(info.height) +
                         " pixels would take " + megabytes(info.working_bytes) +
                         " in addition to the picture; the limit is " + megabytes(limits.working_bytes) +
                         " (decode.max_memory). Raise it, or save the picture as a baseline JPEG or as a PNG without "
                         "interlacing: they are decoded row by row");
}

Raster::Raster(const PictureInfo& info, std::uint8_t* out)
    : file_(file_size_of(info)),
      reduced_{blocks(file_.width, info.reduction), blocks(file_.height, info.reduction)},
      reduction_(info.reduction),
      // EXIF orientation as flips along the axes of the file, then an exchange of the axes (5 to 8).
      flip_x_(info.orientation == 2 || info.orientation == 3 || info.orientation == 7 || info.orientation == 8),
      flip_y_(info.orientation == 3 || info.orientation == 4 || info.orientation == 6 || info.orientation == 7),
      swap_(info.orientation >= 5),
      direct_(info.orientation == 1 && info.reduction == 1),
      out_stride_(std::size_t{3} * static_cast<std::size_t>(info.pixel_width)),
      out_(out) {
  if (direct_) return;
  const std::size_t row_bytes = std::size_t{3} * static_cast<std::size_t>(file_.width);
  // One byte more, because put_rows() reads four bytes a pixel.
  strip_.reset(new std::uint8_t[row_bytes * static_cast<std::size_t>(std::min(strip_rows, file_.height)) + 1]);
  if (reduction_ > 1) {
    sums_.assign(std::size_t{3} * static_cast<std::size_t>(reduced_.width), 0);
    mean_row_.resize(sums_.size());
  }
}

std::uint8_t* Raster::row(int y) {
  if (direct_) return out_ + static_cast<std::size_t>(y) * out_stride_;
  return strip_.get() +
         std::size_t{3} * static_cast<std::size_t>(file_.width) * static_cast<std::size_t>(y - committed_);
}

void Raster::commit(int end) {
  if (!direct_ && end > committed_) {
    const std::size_t stride = std::size_t{3} * static_cast<std::size_t>(file_.width);
    if (reduction_ == 1) {
      put_rows(strip_.get(), stride, committed_, end - committed_);
    } else {
      for (int y = committed_; y < end; ++y) reduce(row(y));
    }
  }
  committed_ = end;
}

void Raster::reduce(const std::uint8_t* row) {
  for (int block = 0; block < reduced_.width; ++block) {
    const int length = block_length(file_.width, reduction_, block, flip_x_);
    // One row of a block fits 32 bits (max_side x 255). The sums of the whole block may not.
    std::uint32_t red = 0, green = 0, blue = 0;
    for (int i = 0; i < length; ++i, row += 3) {
      red += row[0];
      green += row[1];
      blue += row[2];
    }
    std::uint64_t* sum = &sums_[std::size_t{3} * static_cast<std::size_t>(block)];
    sum[0] += red;
    sum[1] += green;
    sum[2] += blue;
  }
  const int rows = block_length(file_.height, reduction_, block_row_, flip_y_);
  if (++block_rows_seen_ < rows) return;
  for (int block = 0; block < reduced_.width; ++block) {
    const std::uint64_t count = static_cast<std::uint64_t>(rows) *
                                static_cast<std::uint64_t>(block_length(file_.width, reduction_, block, flip_x_));
    for (std::size_t i = std::size_t{3} * static_cast<std::size_t>(block), end = i + 3; i < end; ++i) {
      mean_row_[i] = static_cast<std::uint8_t>((sums_[i] + count / 2) / count);
    }
  }
  put_rows(mean_row_.data(), mean_row_.size(), block_row_, 1);
  std::fill(sums_.begin(), sums_.end(), 0);
  block_rows_seen_ = 0;
  ++block_row_;
}

/// Writes rows [first, first + count) of the reduced file raster to their places on display.
void Raster::put_rows(const std::uint8_t* rows, std::size_t stride, int first, int count) {
  const int width = reduced_.width;
  const auto display_y = [&](int y) { return flip_y_ ? reduced_.height - 1 - y : y; };
  if (!swap_) {
    for (int i = 0; i < count; ++i) {
      const std::uint8_t* from = rows + static_cast<std::size_t>(i) * stride;
      std::uint8_t* to = out_ + static_cast<std::size_t>(display_y(first + i)) * out_stride_;
      if (!flip_x_) {
        std::memcpy(to, from, stride);
        continue;
      }
      to += stride;
      for (int x = 0; x < width; ++x, from += 3) {
        to -= 3;
        to[0] = from[0];
        to[1] = from[1];
        to[2] = from[2];
      }
    }
    return;
  }
  // A column of the strip becomes a run of `count` pixels in one display row.
  // Writing the whole run at a time writes each cache line once.
  const int low = flip_y_ ? display_y(first + count - 1) : first;
  const auto row_step = flip_y_ ? -static_cast<std::ptrdiff_t>(stride) : static_cast<std::ptrdiff_t>(stride);
  const auto column_step =
      flip_x_ ? -static_cast<std::ptrdiff_t>(out_stride_) : static_cast<std::ptrdiff_t>(out_stride_);
  const std::uint8_t* column = rows + (flip_y_ ? static_cast<std::size_t>(count - 1) * stride : 0);
  std::uint8_t* run = out_ + (flip_x_ ? static_cast<std::size_t>(width - 1) * out_stride_ : 0) +
                      std::size_t{3} * static_cast<std::size_t>(low);
  for (int x = 0; x < width; ++x, column += 3, run += column_step) {
    const std::uint8_t* from = column;
    std::uint8_t* to = run;
    // A pixel is moved as four bytes at once. The next pixel overwrites the surplus, so the last one moves three.
    for (int i = 1; i < count; ++i, to += 3, from += row_step) std::memcpy(to, from, 4);
    std::memcpy(to, from, 3);
  }
}

}  // namespace millrace
