#pragma once

#include <cstdint>
#include <vector>

namespace millrace {

/// Resampling along one axis in fixed point: value i comes from weights[i * taps + k] and v[clamp(first[i] + k)], k <
/// count[i].
struct ResampleTable {
  int taps = 0;
  std::vector<std::int32_t> first, count, weights;
};

/// The triangle filter of Pillow's Image.resize(BILINEAR), as wide as the reduction; weights have 22 fraction bits.
ResampleTable triangle_table(int from, int to);

/// The two taps of cv2.resize(INTER_LINEAR); weights have 11 fraction bits. OpenCV puts columns beyond the edge on the
/// edge and keeps the weights of rows there, which rounds differently: `rows` says along which axis.
ResampleTable linear_table(int from, int to, bool rows);

}  // namespace millrace
