#include "gpu/ops/blend_windows.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/gpu/on_device.hpp"

namespace millrace {
namespace {

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(random() % 2001) / 100 - 10;
  return values;
}

struct Case {
  Extent item, roi;
  int classes;
  WindowOrder order{};
  Mirror axes{};  ///< along which windows are mirrored, each in another way
};

// One band of windows of two items, whose rows wrap around in the ring.
struct Band {
  explicit Band(const Case& c) : roi(c.roi), classes(c.classes), order(c.order), mirrors(mirrors_of(c.axes)) {
    WindowOptions options;
    options.roi = c.roi;
    options.overlap = 0.5;
    weights = window_weights(options);
    grid = WindowGrid(c.item, options);
    size = {c.roi.rows, std::max(c.item.lines, c.roi.lines), std::max(c.item.columns, c.roi.columns)};
    first = grid.rows.back();
    outputs = random_values(2 * grid.band_windows() * classes * roi.values(), 5);
  }

  Extent start(std::int64_t window) const { return grid.start((grid.bands() - 1) * grid.band_windows() + window); }

  const Mirror& mirror(std::int64_t window) const { return mirrors[static_cast<std::size_t>(window) % mirrors.size()]; }

  /// The sums of both items after calls of `in_call` windows.
  std::vector<float> blend(Device& device, std::int64_t in_call) const {
    const Tensor weights_there = on(device, weights, {roi.values()});
    std::vector<Tensor> memory;
    std::vector<BlendSums> sums;
    for (int item = 0; item < 2; ++item) {
      BlendSums one{nullptr, size, classes};
      memory.push_back(on(device, random_values(one.values(), 9), {one.values()}));
      one.sums = static_cast<float*>(memory.back().data);
      sums.push_back(one);
    }
    const std::int64_t count = 2 * grid.band_windows(), values = classes * roi.values();
    for (std::int64_t begin = 0; begin < count; begin += in_call) {
      const std::int64_t end = std::min(begin + in_call, count);
      const std::vector<float> part(outputs.begin() + begin * values, outputs.begin() + end * values);
      const Tensor there = on(device, part, {end - begin, classes, roi.rows, roi.lines, roi.columns});
      std::vector<BlendWindow> windows;
      for (std::int64_t w = begin; w < end; ++w) {
        const auto item = static_cast<std::size_t>(w / grid.band_windows());
        windows.push_back({&sums[item], static_cast<int>(w - begin), start(w % grid.band_windows()),
                           mirror(w % grid.band_windows())});
      }
      blend_windows(device, there, roi, order, static_cast<const float*>(weights_there.data), windows);
    }
    std::vector<float> all;
    for (const Tensor& one : memory) {
      const auto of_item = values_of<float>(device, one);
      all.insert(all.end(), of_item.begin(), of_item.end());
    }
    return all;
  }

  /// The same in double precision: place by place over all windows.
  std::vector<double> expected() const {
    std::vector<double> all;
    for (std::int64_t item = 0; item < 2; ++item) {
      const BlendSums layout{nullptr, size, classes};
      const auto begun = random_values(layout.values(), 9);
      std::size_t at = 0;
      for (int slot = 0; slot < size.rows; ++slot) {
        for (int k = 0; k <= classes; ++k) {
          for (int line = 0; line < size.lines; ++line) {
            for (int column = 0; column < size.columns; ++column, ++at) {
              double sum = static_cast<double>(begun[at]);
              for (std::int64_t w = 0; w < grid.band_windows(); ++w) {
                const int l = line - start(w).lines, c = column - start(w).columns;
                if (l < 0 || c < 0 || l >= roi.lines || c >= roi.columns) continue;
                int r = 0;
                while ((first + r) % size.rows != slot) ++r;
                const Mirror& m = mirror(w);
                const int seen_r = m.rows ? roi.rows - 1 - r : r, seen_l = m.lines ? roi.lines - 1 - l : l,
                          seen_c = m.columns ? roi.columns - 1 - c : c;
                const std::array seen{seen_c, seen_l, seen_r}, sides{roi.columns, roi.lines, roi.rows};
                const auto slow = static_cast<std::size_t>(order.slow), middle = static_cast<std::size_t>(order.middle),
                           fast = static_cast<std::size_t>(order.fast);
                const auto place =
                    static_cast<std::size_t>((seen[slow] * sides[middle] + seen[middle]) * sides[fast] + seen[fast]);
                const auto row = static_cast<std::size_t>(item * grid.band_windows() + w);
                const auto plane = static_cast<std::size_t>(roi.values());
                const double value =
                    k == classes
                        ? 1
                        : static_cast<double>(
                              outputs[(row * static_cast<std::size_t>(classes) + static_cast<std::size_t>(k)) * plane +
                                      place]);
                sum += static_cast<double>(weights[static_cast<std::size_t>((r * roi.lines + l) * roi.columns + c)]) *
                       value;
              }
              all.push_back(sum);
            }
          }
        }
      }
    }
    return all;
  }

  Extent roi;
  int classes, first = 0;
  WindowOrder order;
  WindowGrid grid;
  Extent size;
  std::vector<float> weights, outputs;
  std::vector<Mirror> mirrors;
};

TEST_CASE("blended sums are those of a slow loop, and do not depend on the calls that bring the windows") {
  HostAndDevice both;
  for (const Case& c :
       {Case{{7, 1, 9}, {4, 1, 4}, 1}, Case{{1, 1, 1}, {3, 1, 5}, 2}, Case{{5, 7, 6}, {4, 4, 3}, 14},
        Case{{9, 5, 40}, {2, 2, 33}, 3}, Case{{5, 7, 6}, {4, 4, 3}, 2, columns_first},
        Case{{7, 1, 9}, {4, 1, 4}, 2, rows_first, {true, false, true}},
        Case{{5, 7, 6}, {4, 4, 3}, 2, rows_first, {true, true, true}},
        Case{{5, 7, 6}, {4, 4, 3}, 2, columns_first, {true, true, true}}, Case{{5, 7, 6}, {4, 5, 3}, 2, {1, 2, 0}},
        Case{{5, 7, 6}, {4, 5, 3}, 2, {0, 2, 1}}, Case{{5, 7, 6}, {4, 5, 3}, 2, {2, 0, 1}, {true, false, true}},
        Case{{5, 7, 6}, {4, 5, 3}, 2, {1, 0, 2}, {true, true, true}}}) {
    const Band band(c);
    const auto sums = band.blend(both.host, 1000);
    const auto expected = band.expected();
    REQUIRE(sums.size() == expected.size());
    double worst = 0;
    for (std::size_t i = 0; i < sums.size(); ++i)
      worst = std::max(worst, std::abs(static_cast<double>(sums[i]) - expected[i]));
    CHECK(worst < 1e-5);
    for (const std::int64_t in_call : {1, 2, 3, 1000}) {
      CHECK(band.blend(both.host, in_call) == sums);
      CHECK(band.blend(both.device, in_call) == sums);
    }
  }
}

TEST_CASE("windows that do not fit their sums are refused") {
  Device host;
  std::vector<float> memory(1000);
  const BlendSums sums{memory.data(), {4, 1, 8}, 2};
  const Tensor outputs = host.empty({1, 2, 4, 1, 4});
  const std::vector<float> weights(16);
  const auto blend = [&](const Tensor& tensor, BlendWindow window) {
    blend_windows(host, tensor, {4, 1, 4}, rows_first, weights.data(), std::vector{window});
  };
  CHECK_THROWS_AS(blend(outputs, {&sums, 1, {}}), std::invalid_argument);
  CHECK_THROWS_AS(blend(outputs, {&sums, 0, {0, 0, 5}}), std::invalid_argument);
  CHECK_THROWS_AS(blend(host.empty({1, 3, 4, 1, 4}), {&sums, 0, {}}), std::invalid_argument);
  CHECK_THROWS_AS(blend(host.empty({1, 2, 4, 1, 4}, DType::f16), {&sums, 0, {}}), std::invalid_argument);
  CHECK_THROWS_AS(blend(host.empty({1, 2, 4, 1, 3}), {&sums, 0, {}}), std::invalid_argument);
}

}  // namespace
}  // namespace millrace
