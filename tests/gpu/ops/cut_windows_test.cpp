#include "gpu/ops/cut_windows.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/gpu/on_device.hpp"

namespace millrace {
namespace {

struct Case {
  Extent item, roi;
  int channels;
  bool reversed, floats;
  /// Values are limited, and zeros stay. With several channels, each plane has another scaling.
  bool clipped = false;
  std::vector<Hole> holes{};
  Mirror axes{};  ///< along which windows are mirrored, each in another way
};

// The whole item as channels [channel][row][line][column], normalised and padded, in double precision.
double expected_value(const Case& c, const std::vector<float>& item, const WindowSource& source, int plane, int row,
                      int line, int column) {
  if (row < 0 || line < 0 || column < 0 || row >= c.item.rows || line >= c.item.lines || column >= c.item.columns)
    return 0;
  for (const Hole& hole : c.holes) {
    if (hole.first_row <= row && row < hole.end_row && hole.first_column <= column && column < hole.end_column)
      return 0;
  }
  const int channel = c.reversed ? c.channels - 1 - plane : plane;
  const std::size_t at =
      ((static_cast<std::size_t>(row) * static_cast<std::size_t>(c.item.lines) + static_cast<std::size_t>(line)) *
           static_cast<std::size_t>(c.item.columns) +
       static_cast<std::size_t>(column)) *
          static_cast<std::size_t>(c.channels) +
      static_cast<std::size_t>(channel);
  const PlaneScaling& by = source.scaling[static_cast<std::size_t>(plane)];
  const float value = c.clipped ? std::clamp(item[at], by.low, by.high) : item[at];
  if (by.zero_stays && value == 0) return 0;
  return (static_cast<double>(value) * by.scale - by.mean) / by.std;
}

TEST_CASE("windows are cut, normalised and padded as a slow loop does it, on host and stream") {
  HostAndDevice both;
  std::mt19937 random(7);
  for (const Case& c :
       {Case{{1, 1, 1}, {4, 1, 4}, 3, false, false}, Case{{9, 1, 7}, {4, 1, 4}, 3, true, false},
        Case{{5, 6, 7}, {2, 3, 4}, 1, false, true}, Case{{3, 2, 40}, {4, 4, 8}, 16, false, true},
        Case{{13, 1, 1}, {4, 1, 1}, 1, true, false}, Case{{9, 1, 7}, {4, 1, 4}, 3, true, false, true},
        Case{{5, 6, 7}, {2, 3, 4}, 2, false, true, true}, Case{{9, 1, 7}, {4, 1, 4}, 3, false, false, true},
        Case{{9, 1, 17},
             {4, 1, 6},
             3,
             true,
             false,
             false,
             {{0, 1, 0, 17}, {2, 5, 3, 8}, {4, 9, 8, 17}, {8, 9, 0, 1}},
             {true, false, true}},
        Case{{9, 1, 17}, {4, 1, 6}, 3, true, false, false, {{2, 5, 3, 8}}},
        Case{{5, 6, 7}, {2, 3, 4}, 2, false, true, true, {}, {true, true, true}}}) {
    const auto values = static_cast<std::size_t>(c.item.values() * c.channels);
    std::vector<std::uint8_t> bytes(values);
    std::vector<float> item(values);
    for (std::size_t i = 0; i < values; ++i) {
      bytes[i] = static_cast<std::uint8_t>(random());
      item[i] = c.floats ? static_cast<float>(random() % 2000) / 8 - 100 : static_cast<float>(bytes[i]);
    }
    WindowOptions options;
    options.roi = c.roi;
    options.overlap = 0.5;
    const WindowGrid grid(c.item, options);
    const std::vector<Mirror> mirrors = mirrors_of(c.axes);
    for (const auto& [type, order] : {std::pair{DType::f32, rows_first},
                                      {DType::f32, columns_first},
                                      {DType::f32, WindowOrder{1, 2, 0}},
                                      {DType::f32, WindowOrder{0, 2, 1}},
                                      {DType::f32, WindowOrder{2, 0, 1}},
                                      {DType::f32, WindowOrder{1, 0, 2}},
                                      {DType::f16, rows_first},
                                      {DType::bf16, columns_first}}) {
      std::vector<std::vector<std::uint16_t>> halves;
      for (Device* device : {&both.host, &both.device}) {
        const auto size = values * (c.floats ? sizeof(float) : 1);
        const auto memory = device->allocate<std::byte>(size);
        const void* const from = c.floats ? static_cast<const void*>(item.data()) : bytes.data();
        if (Stream* stream = device->stream()) {
          stream->upload(from, memory.get(), size);
        } else {
          std::memcpy(memory.get(), from, size);
        }
        WindowSource source;
        source.values = memory.get();
        source.type = c.floats ? DType::f32 : DType::u8;
        source.channels = c.channels;
        source.item = c.item;
        source.before = grid.before;
        source.ring = c.item.rows;
        source.reversed = c.reversed;
        source.scaling.fill({.scale = 0.5F, .mean = 3});
        source.scaling[0].mean = 1.5F;
        source.scaling[0].std = 4;
        if (c.clipped) {
          for (PlaneScaling& plane : source.scaling) {
            plane.zero_stays = true;
            plane.low = c.floats ? -50 : 20;
            plane.high = 90;
          }
          source.scaling[0].low = 0;
          // Plane 1 differs from plane 0 in all members.
          source.scaling[1] = {.low = -64, .high = 128, .scale = 0.25F, .mean = -8, .std = 16, .zero_stays = false};
        }
        source.holes = c.holes.data();
        source.hole_count = static_cast<int>(c.holes.size());
        std::vector<CutWindow> windows{{nullptr, {}}};
        for (std::int64_t w = 0; w < grid.windows(); ++w)
          windows.push_back({&source, grid.start(w), mirrors[static_cast<std::size_t>(w) % mirrors.size()]});
        const auto rows = static_cast<std::int64_t>(windows.size()) + 1;
        const Tensor inputs = device->empty({rows, c.channels, c.roi.rows, c.roi.lines, c.roi.columns}, type);
        cut_windows(*device, windows, c.roi, order, inputs);
        if (type != DType::f32) {
          halves.push_back(values_of<std::uint16_t>(*device, inputs));
          continue;
        }
        const auto cut = values_of<float>(*device, inputs);
        int wrong = 0;
        std::size_t at = 0;
        for (std::int64_t w = 0; w < rows; ++w) {
          const bool blank = w == 0 || w == rows - 1;
          const Extent start = blank ? Extent{} : grid.start(w - 1);
          const Mirror m = blank ? Mirror{} : mirrors[static_cast<std::size_t>(w - 1) % mirrors.size()];
          for (int p = 0; p < c.channels; ++p) {
            for (int slow = 0; slow < c.roi.along(order.slow); ++slow) {
              for (int middle = 0; middle < c.roi.along(order.middle); ++middle) {
                for (int fast = 0; fast < c.roi.along(order.fast); ++fast, ++at) {
                  std::array<int, 3> place{};  // by axis: columns, lines, rows
                  place[static_cast<std::size_t>(order.slow)] = slow;
                  place[static_cast<std::size_t>(order.middle)] = middle;
                  place[static_cast<std::size_t>(order.fast)] = fast;
                  const auto [x, l, r] = place;
                  const int from_r = m.rows ? c.roi.rows - 1 - r : r, from_l = m.lines ? c.roi.lines - 1 - l : l,
                            from_x = m.columns ? c.roi.columns - 1 - x : x;
                  const double expected =
                      blank ? 0
                            : expected_value(c, item, source, p, start.rows + from_r - grid.before.rows,
                                             start.lines + from_l - grid.before.lines,
                                             start.columns + from_x - grid.before.columns);
                  wrong += static_cast<int>(cut[at] != static_cast<float>(expected));
                }
              }
            }
          }
        }
        CHECK(wrong == 0);
      }
      if (type != DType::f32) CHECK(halves.front() == halves.back());
    }
  }
}

TEST_CASE("a ring of rows gives the same windows as the whole item") {
  Device host;
  constexpr int rows = 11, columns = 6, ring = 5;
  std::vector<std::uint8_t> whole(std::size_t{rows} * columns), last(std::size_t{ring} * columns);
  std::mt19937 random(3);
  for (auto& value : whole) value = static_cast<std::uint8_t>(random());
  // The ring has the last five rows of the item.
  for (int row = rows - ring; row < rows; ++row)
    std::memcpy(&last[static_cast<std::size_t>(row % ring) * columns], &whole[static_cast<std::size_t>(row) * columns],
                columns);
  WindowSource all;
  all.channels = 1;
  all.item = {rows, 1, columns};
  all.values = whole.data();
  all.ring = rows;
  WindowSource few = all;
  few.values = last.data();
  few.ring = ring;
  const Tensor expected = host.empty({1, 1, 4, columns}), cut = host.empty({1, 1, 4, columns});
  for (const int start : {6, 7}) {
    cut_windows(host, std::vector<CutWindow>{{&all, {start, 0, 0}}}, {4, 1, columns}, rows_first, expected);
    cut_windows(host, std::vector<CutWindow>{{&few, {start, 0, 0}}}, {4, 1, columns}, rows_first, cut);
    CHECK(values_of<float>(host, cut) == values_of<float>(host, expected));
  }
}

TEST_CASE("tensors and sources that do not fit are refused") {
  Device host;
  WindowSource source;
  source.channels = 1;
  const std::vector<CutWindow> one{{&source, {}}};
  CHECK_THROWS_AS(cut_windows(host, one, {2, 1, 2}, rows_first, host.empty({1, 3, 2, 2})), std::invalid_argument);
  CHECK_THROWS_AS(cut_windows(host, one, {2, 1, 2}, rows_first, host.empty({1, 1, 2, 3})), std::invalid_argument);
  CHECK_THROWS_AS(cut_windows(host, one, {2, 1, 2}, rows_first, host.empty({0, 1, 2, 2})), std::invalid_argument);
  CHECK_THROWS_AS(cut_windows(host, one, {2, 1, 2}, rows_first, host.empty({1, 1, 2, 2}, DType::i32)),
                  std::invalid_argument);
}

}  // namespace
}  // namespace millrace
