#include "gpu/resample_table.hpp"

#include <cstddef>

namespace millrace {
namespace {

template <class Taps>
ResampleTable table_of(int taps, int size, const Taps& taps_of) {
  ResampleTable table;
  table.taps = taps;
  table.weights.resize(static_cast<std::size_t>(size) * static_cast<std::size_t>(taps));
  // Each value has room for the maximum number of weights. Weights that it does not need stay 0.
  for (int i = 0; i < size; ++i) {
    const TapRange range = taps_of(i, table.weights.data() + static_cast<std::ptrdiff_t>(i) * taps);
    table.first.push_back(range.first);
    table.count.push_back(range.count);
  }
  return table;
}

}  // namespace

ResampleTable triangle_table(int from, int to, int begin, int size) {
  return table_of(maximum_triangle_taps(from, to), size,
                  [&](int i, std::int32_t* weights) { return triangle_taps(from, to, begin + i, weights); });
}

ResampleTable linear_table(int from, int to, bool rows) {
  return table_of(2, to, [&](int i, std::int32_t* weights) { return linear_taps(from, to, rows, i, weights); });
}

}  // namespace millrace
