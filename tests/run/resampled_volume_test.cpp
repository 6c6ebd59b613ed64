#include "run/resampled_volume.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "io/files/decode_error.hpp"

namespace millrace {
namespace {

/// A volume of noise in memory that is read like a compressed file.
class FakeVolume final : public RegionSource {
 public:
  FakeVolume(const Extent& size, const std::array<double, 3>& spacing_mm, int channels = 1)
      : voxels_(static_cast<std::size_t>(size.values() * channels)) {
    std::mt19937 random(static_cast<unsigned>(size.values()));
    for (float& voxel : voxels_) voxel = static_cast<float>(random() % 4000) - 1000;
    info_.size = size;
    info_.channels = channels;
    info_.type = DType::f32;
    info_.volume = true;
    info_.spacing_mm = spacing_mm;
  }
  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override { return 1000; }
  void read(int first, int count, void* to) override {
    CHECK(first >= end_);  // forward only, and no slice twice
    end_ = first + count;
    REQUIRE(end_ <= info_.size.rows);
    std::memcpy(to, voxels_.data() + first * info_.size.row_values() * info_.channels,
                static_cast<std::size_t>(count * info_.row_bytes()));
  }
  double at(int row, int line, int column) const {
    return static_cast<double>(
        voxels_[static_cast<std::size_t>((row * info_.size.lines + line) * info_.size.columns + column)]);
  }
  std::vector<float>& voxels() { return voxels_; }

 private:
  std::vector<float> voxels_;
  RegionInfo info_;
  int end_ = 0;
};

/// The value in double precision, from the eight voxels around its place.
double expected_value(const FakeVolume& volume, const Extent& to, int row, int line, int column) {
  const Extent& from = volume.info().size;
  const auto place = [](int i, int count, int wanted) {
    return std::clamp((i + 0.5) * count / wanted - 0.5, 0.0, count - 1.0);
  };
  const double r = place(row, from.rows, to.rows), l = place(line, from.lines, to.lines),
               c = place(column, from.columns, to.columns);
  double sum = 0;
  for (int corner = 0; corner < 8; ++corner) {
    const auto of_axis = [&](double at, int bit, int count) {
      const int low = static_cast<int>(at);
      const bool high = (corner >> bit & 1) != 0;
      return std::pair{std::min(low + (high ? 1 : 0), count - 1), high ? at - low : 1 - (at - low)};
    };
    const auto [ri, rw] = of_axis(r, 0, from.rows);
    const auto [li, lw] = of_axis(l, 1, from.lines);
    const auto [ci, cw] = of_axis(c, 2, from.columns);
    sum += rw * lw * cw * volume.at(ri, li, ci);
  }
  return sum;
}

std::shared_ptr<RegionSource> resampled(const std::shared_ptr<RegionSource>& volume,
                                        const std::array<double, 3>& spacing_mm) {
  return resampled_volume(volume, spacing_mm, 64 << 20);
}

TEST_CASE("voxels are interpolated along three axes, for any slices that are asked for") {
  struct Case {
    Extent size;
    std::array<double, 3> spacing, wanted;
    Extent to;
  };
  for (const auto& [size, spacing, wanted, to] :
       {Case{{10, 12, 14}, {1, 1, 1}, {2, 2, 2}, {5, 6, 7}},
        Case{{10, 12, 14}, {1, 1, 1}, {0.5, 0.4, 0.3}, {33, 30, 28}},
        Case{{7, 9, 11}, {0.7, 0.8, 2.5}, {1, 1, 1}, {18, 7, 8}}, Case{{7, 9, 11}, {1, 1, 5}, {1, 1, 1}, {35, 9, 11}},
        Case{{9, 9, 11}, {0.7, 0.7, 3}, {1.4, 0, 0}, {9, 9, 6}}, Case{{1, 1, 1}, {1, 1, 1}, {0.3, 0.3, 0.3}, {3, 3, 3}},
        Case{{50, 3, 4}, {1, 1, 1}, {1, 1, 9}, {6, 3, 4}},
        Case{{3, 4, 5}, {0.5, 1, 0.5}, {1, 1, 1}, {2, 4, 2}},  // halves are rounded to even
        Case{{3, 4, 5}, {1, 1, 1}, {99, 99, 99}, {1, 1, 1}}}) {
    CAPTURE(to.rows);
    const FakeVolume whole(size, spacing);
    std::vector<float> first;
    for (const int step : {1, 2, 5, 100}) {
      const auto region = resampled(std::make_shared<FakeVolume>(size, spacing), wanted);
      const RegionInfo& info = region->info();
      REQUIRE(info.size == to);
      CHECK(info.file_size == size);
      CHECK(info.spacing_mm == spacing);  // of the labels, which have the voxels of the file
      std::vector<float> values(static_cast<std::size_t>(to.values()));
      for (int row = 0; row < to.rows; row += step)
        region->read(row, std::min(step, to.rows - row), values.data() + row * to.row_values());
      if (first.empty()) first = values;
      CHECK(values == first);
    }
    double worst = 0;
    for (int row = 0; row < to.rows; ++row) {
      for (int line = 0; line < to.lines; ++line) {
        for (int column = 0; column < to.columns; ++column) {
          const auto at = static_cast<std::size_t>((row * to.lines + line) * to.columns + column);
          worst =
              std::max(worst, std::abs(static_cast<double>(first[at]) - expected_value(whole, to, row, line, column)));
        }
      }
    }
    CHECK(worst < 1e-3);  // values go up to 3000
  }
}

TEST_CASE("channels are resampled each on their own") {
  const Extent size{5, 6, 7}, to{8, 9, 10};
  const std::array<double, 3> spacing{1, 1, 1}, wanted{0.7, 0.7, 0.6};
  const auto three = std::make_shared<FakeVolume>(size, spacing, 3);
  std::vector<std::vector<float>> expected;
  for (std::size_t channel = 0; channel < 3; ++channel) {
    const auto one = std::make_shared<FakeVolume>(size, spacing);
    for (std::size_t i = 0; i < one->voxels().size(); ++i) one->voxels()[i] = three->voxels()[3 * i + channel];
    const auto region = resampled(one, wanted);
    REQUIRE(region->info().size == to);
    std::vector<float>& values = expected.emplace_back(static_cast<std::size_t>(to.values()));
    region->read(0, to.rows, values.data());
  }
  const auto region = resampled(three, wanted);
  std::vector<float> values(static_cast<std::size_t>(3 * to.values()));
  for (int row = 0; row < to.rows; ++row) region->read(row, 1, values.data() + row * 3 * to.row_values());
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < values.size(); ++i) wrong += values[i] == expected[i % 3][i / 3] ? 0 : 1;
  CHECK(wrong == 0);
  CHECK(region->memory_bytes() == 1000 + 4 * 3 * (6 * 7 + 2 * 9 * 10 + 7));
}

TEST_CASE("values may be changed before they are resampled") {
  const Extent size{5, 6, 7};
  const std::array<double, 3> spacing{1, 1, 1}, wanted{0.7, 0.7, 0.6};
  const auto changed = std::make_shared<FakeVolume>(size, spacing);
  for (float& voxel : changed->voxels()) voxel = std::clamp(voxel, -100.0F, 500.0F);
  const auto expected = resampled(changed, wanted),
             region = resampled(std::make_shared<FakeVolume>(size, spacing), wanted);
  REQUIRE(region->resampled() != nullptr);
  CHECK(region->resampled()->info().size == size);
  region->change_first([](std::span<float> values) {
    for (float& value : values) value = std::clamp(value, -100.0F, 500.0F);
  });
  const auto values_of = [](RegionSource& source) {
    std::vector<float> values(static_cast<std::size_t>(source.info().size.values()));
    source.read(0, source.info().size.rows, values.data());
    return values;
  };
  CHECK(values_of(*region) == values_of(*expected));
}

TEST_CASE("a volume with as many voxels is not resampled") {
  const auto volume = std::make_shared<FakeVolume>(Extent{7, 9, 11}, std::array{0.7, 0.8, 2.5});
  for (const auto& wanted : {std::array{0.7, 0.8, 2.5}, {0.71, 0.79, 2.51}, {0.0, 0.0, 0.0}, {0.0, 0.8, 0.0}})
    CHECK(resampled(volume, wanted) == volume);
}

TEST_CASE("a voxel that is not finite touches only voxels that have a share of it") {
  const auto volume = std::make_shared<FakeVolume>(Extent{4, 4, 4}, std::array{1.0, 1.0, 1.0});
  volume->voxels()[0] = std::numeric_limits<float>::infinity();
  const auto region = resampled(volume, {1, 1, 0.5});
  std::vector<float> values(static_cast<std::size_t>(region->info().size.values()));
  region->read(0, region->info().size.rows, values.data());
  CHECK(std::ranges::count_if(values, [](float value) { return !std::isfinite(value); }) == 3);
}

TEST_CASE("volumes that cannot be resampled") {
  const auto reason = [](const Extent& size, const std::array<double, 3>& spacing, const std::array<double, 3>& wanted,
                         std::int64_t memory = 64 << 20) {
    try {
      resampled_volume(std::make_shared<FakeVolume>(size, spacing), wanted, memory);
    } catch (const PictureError& error) {
      return error.reason();
    }
    return Reason::internal;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  CHECK(reason({4, 4, 4}, {1, 1, 0}, {1, 1, 1}) == Reason::unsupported_format);
  CHECK(reason({4, 4, 4}, {1, 1, std::nan("")}, {1, 1, 1}) == Reason::unsupported_format);
  CHECK(reason({4, 4, 4}, {1, 1, 0}, {2, 2, 0}) == Reason::internal);  // that axis is not resampled
  CHECK(reason({4, 4, 4}, {1e6, 1e6, 1}, {1, 1, 1}) == Reason::too_large);
  CHECK(reason({4, 4, 4}, {1, 1, 1e9}, {1, 1, 1}) == Reason::too_large);
  CHECK(reason({4, 4, 4}, {infinity, 1, 1}, {1, 1, 1}) == Reason::too_large);
  CHECK(reason({4, 4, 4}, {1, 1, infinity}, {1, 1, 1}) == Reason::too_large);
  CHECK(reason({4, 1, 4}, {1e5, 1, 1}, {1, 1, 1}, std::int64_t{1} << 40) == Reason::too_large);
  // 16 voxels of a slice, two slices of 64, and a line of 4.
  CHECK(reason({4, 4, 4}, {2, 2, 1}, {1, 1, 1}, 1000 + 4 * (16 + 2 * 64 + 4)) == Reason::internal);
  CHECK(reason({4, 4, 4}, {2, 2, 1}, {1, 1, 1}, 1000 + 4 * (16 + 2 * 64 + 4) - 1) == Reason::too_large);
}

}  // namespace
}  // namespace millrace
