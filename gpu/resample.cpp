#include "gpu/resample.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu/clones.hpp"
#include "gpu/resample_table.hpp"

namespace millrace {

namespace {

constexpr int fraction_bits = 22;  // of the weights
constexpr std::int32_t half = 1 << (fraction_bits - 1);

// Sums start with `half`, so the shift rounds to the nearest value.
std::uint8_t rounded(std::int32_t sum) { return static_cast<std::uint8_t>(std::clamp(sum >> fraction_bits, 0, 255)); }

/// Filters one row along x. Loads four bytes for each pixel, so it reads one byte past the last pixel of `row`.
MILLRACE_CLONES void filter_row(const std::uint8_t* row, const int* first, const int* count,
                                const std::int32_t* weights, int taps, int width, std::uint8_t* out) {
  // Three channels in four lanes. The fourth has the next pixel's first channel, and nothing uses its sum.
  using Lanes8 = std::uint8_t __attribute__((vector_size(4)));
  using Lanes32 = std::int32_t __attribute__((vector_size(16)));
  for (int x = 0; x < width; ++x) {
    Lanes32 sum = {half, half, half, half};
    const std::uint8_t* pixel = row + 3 * static_cast<std::ptrdiff_t>(first[x]);
    const std::int32_t* weight = weights + static_cast<std::ptrdiff_t>(x) * taps;
    for (int k = 0; k < count[x]; ++k) {
      Lanes8 lanes;
      std::memcpy(&lanes, pixel + 3 * static_cast<std::ptrdiff_t>(k), sizeof lanes);
      sum += __builtin_convertvector(lanes, Lanes32) * weight[k];
    }
    for (int channel = 0; channel < 3; ++channel) out[3 * x + channel] = rounded(sum[channel]);
  }
}

/// Filters along y: one output row from `count` rows of `bytes` bytes each.
MILLRACE_CLONES void filter_column(const std::uint8_t* rows, const std::int32_t* weights, int count,
                                   std::ptrdiff_t bytes, std::int32_t* __restrict sums, std::uint8_t* __restrict out) {
  for (std::ptrdiff_t i = 0; i < bytes; ++i) sums[i] = half;
  for (int k = 0; k < count; ++k) {
    const std::uint8_t* row = rows + k * bytes;
    const std::int32_t weight = weights[k];
    for (std::ptrdiff_t i = 0; i < bytes; ++i) sums[i] += row[i] * weight;
  }
  for (std::ptrdiff_t i = 0; i < bytes; ++i) out[i] = rounded(sums[i]);
}

/// An RGB picture that owns its pixels, rows without padding.
struct Raster {
  int width, height;
  std::vector<std::uint8_t> data;

  Image8 view() const { return {data.data(), width, height}; }
};

std::size_t row_bytes(int width) { return 3 * static_cast<std::size_t>(width); }

/// Resizes rows to `to_width`. Returns `width` columns of the result, from `left` on.
Raster resample_rows(const Image8& from, int to_width, int left, int width) {
  const ResampleTable filter = triangle_table(from.width, to_width, left, width);
  Raster to{width, from.height, std::vector<std::uint8_t>(row_bytes(width) * static_cast<std::size_t>(from.height))};
  std::vector<std::uint8_t> padded(row_bytes(from.width) + 1);
  for (int y = 0; y < from.height; ++y) {
    const std::uint8_t* row = from.data + static_cast<std::size_t>(y) * row_bytes(from.width);
    if (y + 1 == from.height) {  // filter_row reads one byte more, and the last row has no byte after it
      std::copy_n(row, row_bytes(from.width), padded.begin());
      row = padded.data();
    }
    filter_row(row, filter.first.data(), filter.count.data(), filter.weights.data(), filter.taps, width,
               to.data.data() + static_cast<std::size_t>(y) * row_bytes(width));
  }
  return to;
}

/// Resizes columns to `to_height`. Returns `height` rows of the result, from `top` on.
Raster resample_columns(const Image8& from, int to_height, int top, int height) {
  const ResampleTable filter = triangle_table(from.height, to_height, top, height);
  const std::size_t bytes = row_bytes(from.width);
  Raster to{from.width, height, std::vector<std::uint8_t>(bytes * static_cast<std::size_t>(height))};
  std::vector<std::int32_t> sums(bytes);
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) {
    filter_column(from.data + static_cast<std::size_t>(filter.first[y]) * bytes,
                  filter.weights.data() + y * static_cast<std::size_t>(filter.taps), filter.count[y],
                  static_cast<std::ptrdiff_t>(bytes), sums.data(), to.data.data() + y * bytes);
  }
  return to;
}

}  // namespace

std::vector<std::uint8_t> resample_triangle(const Image8& pixels, int width, int height) {
  return resample_triangle(pixels, width, height, {0, 0, width, height});
}

// A pass to the same size changes no value. So it serves to cut out the window.
std::vector<std::uint8_t> resample_triangle(const Image8& pixels, int width, int height, const PixelWindow& window) {
  const bool across = width != pixels.width || window.width != width,
             down = height != pixels.height || window.height != height;
  const auto rows = [&](const Image8& from) { return resample_rows(from, width, window.left, window.width); };
  const auto columns = [&](const Image8& from) { return resample_columns(from, height, window.top, window.height); };
  if (!across && !down) return {pixels.data, pixels.data + row_bytes(width) * static_cast<std::size_t>(height)};
  if (!down) return rows(pixels).data;
  if (!across) return columns(pixels).data;
  // The order of Pillow 13. Each pass rounds to 8 bits, so the order changes results.
  const bool columns_first =
      width != pixels.width && height < pixels.height && pixels.height - height > 2 * (pixels.width - width);
  if (columns_first) return rows(columns(pixels).view()).data;
  return columns(rows(pixels).view()).data;
}

RowResampler::RowResampler(int from_width, int from_height, int width, int height)
    : from_height_(from_height),
      width_(width),
      height_(height),
      columns_(triangle_table(from_width, width)),
      weights_(static_cast<std::size_t>(maximum_triangle_taps(from_height, height))),
      sums_(row_bytes(width)),
      from_row_(row_bytes(from_width) + 1),  // filter_row reads one byte more
      rows_(row_bytes(width) * weights_.size()) {}

std::int64_t RowResampler::bytes(int from_width, int from_height, int width, int height) {
  const std::int64_t columns = width, of_column = maximum_triangle_taps(from_width, width);
  const std::int64_t number = sizeof(std::int32_t), rows = maximum_triangle_taps(from_height, height);
  const std::int64_t table = columns * (of_column + 2) * number, sums = 3 * columns * number;
  return table + sums + rows * (3 * columns + number) + std::int64_t{3} * from_width + 1;
}

void RowResampler::read(int row, const ReadRow& read_row, std::uint8_t* to) {
  const TapRange taps = triangle_taps(from_height_, height_, row, weights_.data());
  const std::size_t bytes = row_bytes(width_);
  const int begin = std::clamp(taps.first, first_, next_);
  std::memmove(rows_.data(), rows_.data() + static_cast<std::size_t>(begin - first_) * bytes,
               static_cast<std::size_t>(next_ - begin) * bytes);
  next_ = std::max(next_, taps.first);
  first_ = taps.first;
  for (; next_ < taps.first + taps.count; ++next_) {
    read_row(next_, from_row_.data());
    filter_row(from_row_.data(), columns_.first.data(), columns_.count.data(), columns_.weights.data(), columns_.taps,
               width_, rows_.data() + static_cast<std::size_t>(next_ - first_) * bytes);
  }
  filter_column(rows_.data(), weights_.data(), taps.count, static_cast<std::ptrdiff_t>(bytes), sums_.data(), to);
}

}  // namespace millrace
