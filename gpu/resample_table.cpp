#include "gpu/resample_table.hpp"

#include <algorithm>
#include <cmath>

namespace millrace {

ResampleTable triangle_table(int from, int to) {
  constexpr int one = 1 << 22;  // 32 bits less 8 of the pixel less 2 against overflow
  const double scale = static_cast<double>(from) / to;
  const double support = std::max(scale, 1.0), inverse = 1.0 / support;
  ResampleTable table;
  table.taps = static_cast<int>(std::ceil(support)) * 2 + 1;
  table.weights.resize(static_cast<std::size_t>(to) * static_cast<std::size_t>(table.taps));
  std::vector<double> weights(static_cast<std::size_t>(table.taps));
  for (int i = 0; i < to; ++i) {
    const double centre = (i + 0.5) * scale;
    const int first = std::max(0, static_cast<int>(centre - support + 0.5));
    const int count = std::min(from, static_cast<int>(centre + support + 0.5)) - first;
    double sum = 0;
    for (int k = 0; k < count; ++k) {
      const double distance = std::abs((k + first - centre + 0.5) * inverse);
      weights[static_cast<std::size_t>(k)] = std::max(0.0, 1.0 - distance);
      sum += weights[static_cast<std::size_t>(k)];
    }
    std::int32_t* fixed = table.weights.data() + static_cast<std::ptrdiff_t>(i) * table.taps;
    for (int k = 0; k < count; ++k) {
      const double weight = sum != 0 ? weights[static_cast<std::size_t>(k)] / sum : 0.0;
      fixed[k] = static_cast<std::int32_t>(0.5 + weight * one);
    }
    table.first.push_back(first);
    table.count.push_back(count);
  }
  return table;
}

ResampleTable linear_table(int from, int to, bool rows) {
  constexpr float one = 1 << 11;
  const double scale = 1.0 / (static_cast<double>(to) / from);  // as OpenCV has it, to the last bit
  ResampleTable table;
  table.taps = 2;
  for (int i = 0; i < to; ++i) {
    const auto source = static_cast<float>((i + 0.5) * scale - 0.5);
    auto first = static_cast<int>(std::floor(source));
    float rest = source - static_cast<float>(first);
    if (!rows && (first < 0 || first >= from - 1)) {
      first = std::clamp(first, 0, from - 1);
      rest = 0;
    }
    table.first.push_back(first);
    table.count.push_back(2);
    table.weights.push_back(static_cast<std::int32_t>(std::lrint((1.0F - rest) * one)));
    table.weights.push_back(static_cast<std::int32_t>(std::lrint(rest * one)));
  }
  return table;
}

}  // namespace millrace
