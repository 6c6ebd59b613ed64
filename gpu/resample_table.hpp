#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "gpu/device_code.hpp"

namespace millrace {

/// Resampling along one axis in fixed point.
/// Value i is the sum of weights[i * taps + k] * v[clamp(first[i] + k)] for k < count[i].
struct ResampleTable {
  int taps = 0;
  std::vector<std::int32_t> first, count, weights;
};

/// The triangle filter of Pillow's Image.resize(BILINEAR), as wide as the reduction; weights have 22 fraction bits.
/// The table covers `size` of the `to` values, from `begin`.
ResampleTable triangle_table(int from, int to, int begin, int size);
inline ResampleTable triangle_table(int from, int to) { return triangle_table(from, to, 0, to); }

/// The two taps of cv2.resize(INTER_LINEAR); weights have 11 fraction bits. At the edge, OpenCV moves columns onto the
/// edge, but keeps the weights of rows, which rounds differently. `rows` selects the axis.
ResampleTable linear_table(int from, int to, bool rows);

/// The inputs of one value.
struct TapRange {
  int first, count;
};

/// Returns the maximum number of taps of a value.
MILLRACE_DEVICE inline int maximum_triangle_taps(int from, int to) {
  const double scale = static_cast<double>(from) / to;
  return static_cast<int>(std::ceil(scale > 1.0 ? scale : 1.0)) * 2 + 1;
}

/// Value i of a triangle_table: its inputs, and what their weights need.
struct TriangleValue {
  int first, count;
  double centre, inverse, sum;

  /// Returns the weight of input first + k.
  MILLRACE_DEVICE std::int32_t weight(int k) const {
    constexpr int one = 1 << 22;  // 22 of 32 bits: 8 are for the pixel, 2 prevent an overflow
    return static_cast<std::int32_t>(0.5 + (sum != 0 ? share(k) / sum : 0.0) * one);
  }
  MILLRACE_DEVICE double share(int k) const {
    const double rest = 1.0 - std::fabs((k + first - centre + 0.5) * inverse);
    return rest > 0.0 ? rest : 0.0;
  }
};
/// Returns value i of a triangle_table.
MILLRACE_DEVICE inline TriangleValue triangle_value(int from, int to, int i) {
  const double scale = static_cast<double>(from) / to;
  const double support = scale > 1.0 ? scale : 1.0, inverse = 1.0 / support, centre = (i + 0.5) * scale;
  const int begin = static_cast<int>(centre - support + 0.5), end = static_cast<int>(centre + support + 0.5);
  const int first = begin > 0 ? begin : 0, count = (end < from ? end : from) - first;
  TriangleValue value{first, count, centre, inverse, 0};
  for (int k = 0; k < count; ++k) value.sum += value.share(k);
  return value;
}

/// Returns the inputs of value i of a triangle_table, and writes their weights.
MILLRACE_DEVICE inline TapRange triangle_taps(int from, int to, int i, std::int32_t* weights) {
  const TriangleValue value = triangle_value(from, to, i);
  for (int k = 0; k < value.count; ++k) weights[k] = value.weight(k);
  return {value.first, value.count};
}

/// Returns the inputs of value i of a linear_table, and writes their two weights.
MILLRACE_DEVICE inline TapRange linear_taps(int from, int to, bool rows, int i, std::int32_t* weights) {
  constexpr float one = 1 << 11;
  const double scale = 1.0 / (static_cast<double>(to) / from);  // the expression of OpenCV, for equal last bits
  const auto source = static_cast<float>((i + 0.5) * scale - 0.5);
  auto first = static_cast<int>(std::floor(source));
  float rest = source - static_cast<float>(first);
  if (!rows && (first < 0 || first >= from - 1)) {
    first = first < 0 ? 0 : from - 1;
    rest = 0;
  }
  weights[0] = static_cast<std::int32_t>(std::rint((1.0F - rest) * one));
  weights[1] = static_cast<std::int32_t>(std::rint(rest * one));
  return {first, 2};
}

}  // namespace millrace
