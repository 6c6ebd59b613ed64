#include "gpu/outline.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>

#include "gpu/clones.hpp"
#include "gpu/finite.hpp"

namespace millrace {

namespace {

// Sides are combined by "or". A block needs no computation if all its logits are inside, or all are outside.
// `near` has both bits: a block with logits on both sides also needs computation.
constexpr unsigned char inside = 1, outside = 2, near = 3;

constexpr unsigned char side_of(float value, float upper, float lower) {
  return value > upper ? inside : value < lower ? outside : near;
}

/// Returns NaN or infinity if there is one.
/// Without the sign, the bits of floats have the order of their values, with NaN last.
MILLRACE_CLONES float largest_magnitude(const float* values, std::size_t count) {
  std::uint32_t largest = 0;
  for (std::size_t i = 0; i < count; ++i)
    largest = std::max(largest, std::bit_cast<std::uint32_t>(values[i]) & 0x7fffffff);
  return std::bit_cast<float>(largest);
}

MILLRACE_CLONES void sides_of(const float* values, std::size_t count, float upper, float lower, unsigned char* sides) {
  for (std::size_t i = 0; i < count; ++i) sides[i] = side_of(values[i], upper, lower);
}

MILLRACE_CLONES void combine_sides(const unsigned char* sides, std::size_t count, unsigned char* combined) {
  for (std::size_t i = 0; i < count; ++i) combined[i] |= sides[i];
}

/// Interpolates a part of a column along x: one tap for all rows.
MILLRACE_CLONES void mix_columns(const float* column0, const float* column1, float weight0, float weight1, int count,
                                 float* out) {
  // Fused, because PyTorch's kernel fuses too. The sum of two rounded products would have other last bits.
  for (int i = 0; i < count; ++i) out[i] = std::fma(weight0, column0[i], weight1 * column1[i]);
}

/// Interpolates along y: one tap for each row.
MILLRACE_CLONES void mix_rows(const float* column, const BilinearTap* taps, int begin, int end, float* out) {
  for (int i = begin; i < end; ++i) {
    const BilinearTap& tap = taps[i];
    out[i] = std::fma(tap.weight0, column[tap.index0], tap.weight1 * column[tap.index1]);
  }
}

/// The last step along y, for one picture column: appends the runs of value > threshold in rows [begin, end).
MILLRACE_CLONES void outline_rows(const float* column, const unsigned char* sides, const BilinearTap* taps,
                                  const int* same_tap_end, int begin, int end, float threshold, RunBuilder& runs) {
  for (int row = begin; row < end;) {
    const BilinearTap& pair = taps[row];
    const int pair_end = std::min(same_tap_end[row], end);
    // The values of these rows are between the same two values. If both are clearly on one side, all rows are.
    const unsigned char side = sides[pair.index0] | sides[pair.index1];
    if (side != near) {
      runs.append(side == inside, static_cast<std::uint32_t>(pair_end - row));
      row = pair_end;
      continue;
    }
    for (; row < pair_end; ++row) {
      const BilinearTap& tap = taps[row];
      const float value = std::fma(tap.weight0, column[tap.index0], tap.weight1 * column[tap.index1]);
      runs.append(value > threshold, 1);
    }
  }
}

/// Returns the end of the equal bytes that start at `begin`.
int uniform_end(const unsigned char* bytes, int begin, int end) {
  const unsigned char value = bytes[begin];
  const std::uint64_t pattern = 0x0101010101010101ULL * value;
  int i = begin + 1;
  for (; i + 8 <= end; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes + i, 8);
    if (word != pattern) break;
  }
  while (i < end && bytes[i] == value) ++i;
  return i;
}

MILLRACE_CLONES std::vector<BilinearTap> taps_of(int from, int to) {
  std::vector<BilinearTap> taps(static_cast<std::size_t>(to));
  const BilinearAxis axis(from, to);
  for (int i = 0; i < to; ++i) taps[static_cast<std::size_t>(i)] = axis.tap(i);
  return taps;
}

std::size_t index(int i) { return static_cast<std::size_t>(i); }

}  // namespace

void check_geometry(const MaskGeometry& g) {
  const auto fail = [](const std::string& what) { throw std::invalid_argument("mask geometry: " + what); };
  for (const int side : {g.logits_width, g.logits_height, g.input_width, g.input_height, g.crop_width, g.crop_height,
                         g.picture_width, g.picture_height}) {
    if (side < 1) fail("every side must be at least 1, one is " + std::to_string(side));
  }
  if (g.crop_width > g.input_width || g.crop_height > g.input_height) {
    fail("the crop of " + std::to_string(g.crop_width) + "x" + std::to_string(g.crop_height) +
         " is larger than the input of " + std::to_string(g.input_width) + "x" + std::to_string(g.input_height));
  }
  if (static_cast<std::uint64_t>(g.picture_width) * static_cast<std::uint64_t>(g.picture_height) >
      std::numeric_limits<std::uint32_t>::max()) {
    fail("a picture of " + std::to_string(g.picture_width) + "x" + std::to_string(g.picture_height) +
         " has more pixels than COCO run lengths can count");
  }
}

std::vector<BilinearTap> bilinear_taps(int from, int to) { return taps_of(from, to); }

MaskOutliner::Axis MaskOutliner::axis(int logits, int input, int crop, int picture) {
  Axis axis;
  axis.middle = taps_of(logits, input);
  // The crop starts at the top left of the input, so its taps come first.
  axis.middle.resize(index(crop));
  axis.outer = taps_of(crop, picture);
  axis.same_tap_end.resize(index(picture));
  for (int i = picture - 1; i >= 0; --i) {
    const BilinearTap& tap = axis.outer[index(i)];
    const bool same = i + 1 < picture && axis.outer[index(i + 1)].index0 == tap.index0;
    axis.same_tap_end[index(i)] = same ? axis.same_tap_end[index(i + 1)] : i + 1;
  }
  for (const BilinearTap& tap : axis.outer) {
    axis.low.push_back(axis.middle[index(tap.index0)].index0);
    axis.high.push_back(axis.middle[index(tap.index1)].index1);
  }
  return axis;
}

MaskOutliner::MaskOutliner(const MaskGeometry& geometry) : geometry_(geometry) {
  check_geometry(geometry);
  x_ = axis(geometry.logits_width, geometry.input_width, geometry.crop_width, geometry.picture_width);
  y_ = axis(geometry.logits_height, geometry.input_height, geometry.crop_height, geometry.picture_height);
  for (int row = 0; row < geometry.logits_height; ++row) {
    // `low` and `high` never fall from one row to the next, so binary search works.
    const auto from = std::lower_bound(y_.low.begin(), y_.low.end(), row);
    const auto until = std::upper_bound(y_.high.begin(), y_.high.end(), row);
    first_row_from_.push_back(static_cast<int>(from - y_.low.begin()));
    row_end_until_.push_back(static_cast<int>(until - y_.high.begin()));
  }
  columns_.resize(index(geometry.logits_width) * index(geometry.logits_height));
  sides_.resize(columns_.size());
  strip_sides_.resize(index(geometry.logits_height));
  across_.resize(index(geometry.logits_height));
  column_.resize(index(geometry.crop_height));
  column_sides_.resize(index(geometry.crop_height));
}

std::vector<std::uint32_t> MaskOutliner::outline(std::span<const float> logits, float threshold) {
  if (logits.size() != columns_.size()) {
    throw std::invalid_argument("mask: " + std::to_string(logits.size()) + " logits given, " +
                                std::to_string(geometry_.logits_width) + "x" + std::to_string(geometry_.logits_height) +
                                " expected");
  }
  classify(logits, threshold);
  RunBuilder runs;
  const auto rows = static_cast<std::uint32_t>(geometry_.picture_height);
  for (int begin = 0; begin < geometry_.picture_width;) {
    int end = begin + 1;  // a strip: picture columns that depend on the same logit columns
    while (end < geometry_.picture_width && x_.low[index(end)] == x_.low[index(begin)] &&
           x_.high[index(end)] == x_.high[index(begin)]) {
      ++end;
    }
    find_spans(x_.low[index(begin)], x_.high[index(begin)]);
    if (spans_.size() == 1 && spans_.front().side != near) {
      // Runs go down the columns, so all columns of the strip are one run.
      runs.append(spans_.front().side == inside, rows * static_cast<std::uint32_t>(end - begin));
    } else {
      compute_strip(begin, end, threshold, runs);
    }
    begin = end;
  }
  return runs.take();
}

void MaskOutliner::classify(std::span<const float> logits, float threshold) {
  const float largest = std::max(largest_magnitude(logits.data(), logits.size()), std::abs(threshold));
  if (!std::isfinite(largest)) throw NonFinite(logits_not_finite);
  const int width = geometry_.logits_width, height = geometry_.logits_height;
  constexpr int tile = 16;  // transposes in tiles, because the rows and columns of a tile stay in the cache
  for (int y0 = 0; y0 < height; y0 += tile) {
    for (int x = 0; x < width; ++x) {
      for (int y = y0; y < std::min(y0 + tile, height); ++y) {
        // Column by column, because masks are computed down the columns.
        columns_[index(x) * index(height) + index(y)] = logits[index(y) * index(width) + index(x)];
      }
    }
  }
  // Two resizings round about a dozen times, each time by at most 2^-24 of the largest value.
  // A margin of 2^-18 is five times as much.
  // min(): the first term may be 0 for denormal logits.
  margin_ = std::ldexp(largest, -18) + std::numeric_limits<float>::min();
  sides_of(columns_.data(), columns_.size(), threshold + margin_, threshold - margin_, sides_.data());
}

void MaskOutliner::find_spans(int low_column, int high_column) {
  const int height = geometry_.logits_height, rows = geometry_.picture_height;
  std::fill(strip_sides_.begin(), strip_sides_.end(), static_cast<unsigned char>(0));
  for (int x = low_column; x <= high_column; ++x) {
    combine_sides(sides_.data() + index(x) * index(height), index(height), strip_sides_.data());
  }
  spans_.clear();
  int row = 0;
  for (int y = 0; y < height;) {
    const int y_end = uniform_end(strip_sides_.data(), y, height);
    const unsigned char side = strip_sides_[index(y)];
    // The picture rows that depend on no other logit rows than these.
    const int begin = std::max(row, first_row_from_[index(y)]), end = row_end_until_[index(y_end - 1)];
    if (side != near && begin < end) {
      if (row < begin) spans_.push_back({row, begin, near});
      spans_.push_back({begin, end, side});
      row = end;
    }
    y = y_end;
  }
  if (row < rows) spans_.push_back({row, rows, near});
}

void MaskOutliner::compute_strip(int begin, int end, float threshold, RunBuilder& runs) {
  const std::size_t low_height = index(geometry_.logits_height), middle_height = index(geometry_.crop_height);
  const int first_middle = x_.outer[index(begin)].index0, last_middle = x_.outer[index(end - 1)].index1;
  // Only grows, so that strips share the memory.
  middle_.resize(std::max(middle_.size(), index(last_middle - first_middle + 1) * middle_height));
  const auto middle_column = [&](int x) { return middle_.data() + index(x - first_middle) * middle_height; };
  const auto middle_begin = [&](const RowSpan& s) { return y_.outer[index(s.begin)].index0; };
  const auto middle_end = [&](const RowSpan& s) { return y_.outer[index(s.end - 1)].index1 + 1; };

  // First resizing: columns of the cropped input, only where pixels must be computed.
  // Both resizings go along x, then along y, as in PyTorch. The other order would have other last bits.
  for (int x = first_middle; x <= last_middle; ++x) {
    const BilinearTap& tap = x_.middle[index(x)];
    const float* column0 = columns_.data() + index(tap.index0) * low_height;
    const float* column1 = columns_.data() + index(tap.index1) * low_height;
    for (const RowSpan& span : spans_) {
      if (span.side != near) continue;
      const int low = y_.low[index(span.begin)], high = y_.high[index(span.end - 1)];
      mix_columns(column0 + low, column1 + low, tap.weight0, tap.weight1, high - low + 1, across_.data() + low);
      mix_rows(across_.data(), y_.middle.data(), middle_begin(span), middle_end(span), middle_column(x));
    }
  }
  // Second resizing: columns of the picture.
  for (int x = begin; x < end; ++x) {
    const BilinearTap& tap = x_.outer[index(x)];
    const float *column0 = middle_column(tap.index0), *column1 = middle_column(tap.index1);
    for (const RowSpan& span : spans_) {
      if (span.side != near) {
        runs.append(span.side == inside, static_cast<std::uint32_t>(span.end - span.begin));
        continue;
      }
      const int first = middle_begin(span), count = middle_end(span) - first;
      mix_columns(column0 + first, column1 + first, tap.weight0, tap.weight1, count, column_.data() + first);
      // Values of the cropped input may be clear although not all of their logits are. outline_rows() skips their rows.
      sides_of(column_.data() + first, index(count), threshold + margin_, threshold - margin_,
               column_sides_.data() + first);
      outline_rows(column_.data(), column_sides_.data(), y_.outer.data(), y_.same_tap_end.data(), span.begin, span.end,
                   threshold, runs);
    }
  }
}

}  // namespace millrace
