#include "gpu/ops/finish_rows.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/gpu/on_device.hpp"

namespace millrace {
namespace {

struct Finished {
  std::vector<std::uint8_t> labels;
  std::vector<float> values, sums;
  int faults = 0;
};

struct Rows {
  Extent item, before, size;
  int first = 0, count = 0, classes = 1;
  std::vector<float> sums;

  int shown() const { return std::min(first + count - before.rows, item.rows) - std::max(first - before.rows, 0); }
  std::size_t places() const {
    return static_cast<std::size_t>(std::max(shown(), 0)) * static_cast<std::size_t>(item.lines * item.columns);
  }

  Finished finish(Device& device, const LabelRule& rule, bool with_values) const {
    BlendSums there{nullptr, size, classes};
    const Tensor memory = on(device, sums, {there.values()});
    there.sums = static_cast<float*>(memory.data);
    const auto count_of_places = static_cast<std::int64_t>(places());
    // More than one byte, because the fake CUDA runtime answers LibTorch's downloads of one byte with 0.
    const Tensor labels = device.empty({count_of_places + 1}, DType::u8);
    const Tensor values = device.empty({count_of_places, classes});
    const Tensor faults = device.empty({1}, DType::i32);
    device.zero(faults);
    const FinishedRows rows{&there,
                            item,
                            before,
                            first,
                            count,
                            static_cast<std::uint8_t*>(labels.data),
                            with_values ? static_cast<float*>(values.data) : nullptr,
                            static_cast<std::int32_t*>(faults.data)};
    finish_rows(device, rule, std::vector{rows});
    Finished finished;
    finished.labels = values_of<std::uint8_t>(device, labels);
    finished.labels.pop_back();
    if (with_values) finished.values = values_of<float>(device, values);
    finished.sums = values_of<float>(device, memory);
    finished.faults = values_of<std::int32_t>(device, faults).front();
    return finished;
  }

  /// Rows with sums and weights at random; some places have no weight.
  static Rows random(Extent item, Extent before, Extent size, int first, int count, int classes) {
    Rows rows{item, before, size, first, count, classes, {}};
    std::mt19937 generator(11);
    const BlendSums layout{nullptr, size, classes};
    const auto plane = static_cast<std::size_t>(layout.plane());
    rows.sums.resize(static_cast<std::size_t>(layout.values()));
    for (std::size_t i = 0; i < rows.sums.size(); ++i) {
      const bool weight = i / plane % static_cast<std::size_t>(classes + 1) == static_cast<std::size_t>(classes);
      rows.sums[i] = static_cast<float>(generator() % 1000) / (weight ? 250.0F : 100.0F) - (weight ? 0.0F : 5.0F);
      if (weight && generator() % 5 == 0) rows.sums[i] = 0;
    }
    return rows;
  }

  /// Sum `k` of a place of the item.
  float sum(int row, int line, int column, int k) const {
    const BlendSums layout{nullptr, size, classes};
    const std::int64_t at = (std::int64_t{(row + before.rows) % size.rows} * (classes + 1) + k) * layout.plane() +
                            std::int64_t{line + before.lines} * size.columns + column + before.columns;
    return sums[static_cast<std::size_t>(at)];
  }
};

// Place by place in double precision, but the quotients are those of float32: labels depend on their order.
void check_against_slow_loop(const Rows& rows, const LabelRule& rule, const Finished& finished) {
  int wrong_labels = 0;
  double worst = 0;
  std::size_t at = 0;
  const int begin = std::max(rows.first - rows.before.rows, 0);
  for (int row = begin; row < begin + rows.shown(); ++row) {
    for (int line = 0; line < rows.item.lines; ++line) {
      for (int column = 0; column < rows.item.columns; ++column, ++at) {
        const float weight = rows.sum(row, line, column, rows.classes);
        std::vector<double> mean, shown;
        for (int k = 0; k < rows.classes; ++k)
          mean.push_back(weight > 0 ? static_cast<double>(rows.sum(row, line, column, k) / weight) : 0);
        const auto best = std::ranges::max_element(mean) - mean.begin();
        std::ptrdiff_t label = rule.empty;
        if (weight > 0) label = best;
        if (weight > 0 && rule.thresholded)
          label = mean[static_cast<std::size_t>(best)] > static_cast<double>(rule.threshold) ? best + 1 : 0;
        wrong_labels += static_cast<int>(finished.labels[at] != label);
        double total = 0;
        for (const double value : mean) total += std::exp(value);
        for (int k = 0; k < rows.classes && !finished.values.empty(); ++k) {
          double value = mean[static_cast<std::size_t>(k)];
          if (weight > 0 && rule.activate && rule.activation == Activation::softmax) value = std::exp(value) / total;
          if (weight > 0 && rule.activate && rule.activation == Activation::sigmoid) value = 1 / (1 + std::exp(-value));
          const auto index = at * static_cast<std::size_t>(rows.classes) + static_cast<std::size_t>(k);
          worst = std::max(worst, std::abs(static_cast<double>(finished.values[index]) - value));
        }
      }
    }
  }
  CHECK(at == finished.labels.size());
  CHECK(wrong_labels == 0);
  CHECK(worst < 2e-6 * 20);
}

TEST_CASE("finished rows have the labels and values of a slow loop, on host and stream") {
  HostAndDevice both;
  const std::vector<Rows> table{
      Rows::random({1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 0, 1, 1),
      Rows::random({9, 1, 7}, {0, 0, 0}, {4, 1, 7}, 3, 4, 3),       // wraps around in the ring
      Rows::random({2, 1, 3}, {1, 0, 2}, {4, 1, 8}, 0, 4, 2),       // padding on all sides
      Rows::random({6, 5, 300}, {0, 1, 0}, {3, 8, 300}, 3, 2, 14),  // a volume, wider than a block
      Rows::random({3, 1, 5}, {1, 0, 0}, {5, 1, 5}, 0, 1, 2),       // padding alone
  };
  for (const Rows& rows : table) {
    for (LabelRule rule :
         {LabelRule{}, LabelRule{Activation::sigmoid, true, 0.5F, 7}, LabelRule{Activation::none, true, -1, 255},
          LabelRule{Activation::softmax, false, 0, 9, false}}) {
      const Finished host = rows.finish(both.host, rule, true), device = rows.finish(both.device, rule, true);
      check_against_slow_loop(rows, rule, host);
      check_against_slow_loop(rows, rule, device);
      CHECK(host.labels == device.labels);
      // CUDA's exp() and that of the host may round differently.
      if (!rule.activate || rule.activation == Activation::none) CHECK(host.values == device.values);
      CHECK(host.sums == device.sums);
      CHECK(host.faults == 0);
      CHECK(device.faults == 0);
      CHECK(rows.finish(both.host, rule, false).labels == host.labels);
    }
  }
}

TEST_CASE("rows that were finished begin at zero again, and others keep their sums") {
  Device host;
  const Rows rows = Rows::random({9, 1, 7}, {0, 0, 0}, {4, 1, 7}, 3, 2, 3);
  const Finished finished = rows.finish(host, {}, false);
  const std::size_t row = 4 * 7;
  for (std::size_t i = 0; i < finished.sums.size(); ++i) {
    const std::size_t slot = i / row;
    CHECK(finished.sums[i] == (slot == 3 || slot == 0 ? 0 : rows.sums[i]));
  }
}

TEST_CASE("places with a value that is not finite are counted, on host and stream") {
  HostAndDevice both;
  Rows rows = Rows::random({4, 1, 300}, {0, 0, 0}, {4, 1, 300}, 0, 4, 3);
  const auto set = [&](std::size_t slot, std::size_t k, std::size_t column, float value) {
    rows.sums[(slot * 4 + k) * 300 + column] = value;
    rows.sums[(slot * 4 + 3) * 300 + column] = 1;
  };
  set(0, 0, 0, std::numeric_limits<float>::quiet_NaN());
  set(1, 2, 299, std::numeric_limits<float>::infinity());
  set(3, 1, 257, -std::numeric_limits<float>::infinity());
  LabelRule rule;
  rule.empty = 200;
  for (Device* device : {&both.host, &both.device}) {
    const Finished finished = rows.finish(*device, rule, false);
    CHECK(finished.faults == 3);
    CHECK(finished.labels[0] == 200);
    CHECK(finished.labels[300 + 299] == 200);
  }
}

TEST_CASE("more rows than the sums have are refused") {
  Device host;
  const Rows rows = Rows::random({9, 1, 7}, {0, 0, 0}, {4, 1, 7}, 0, 5, 3);
  CHECK_THROWS_AS(rows.finish(host, {}, false), std::invalid_argument);
}

}  // namespace
}  // namespace millrace
