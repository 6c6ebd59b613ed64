#include "stages/scaling.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tests/stages/semantic_world.hpp"

namespace millrace {
namespace {

/// A volume in memory, read forwards like a compressed file.
class Volume final : public RegionSource {
 public:
  Volume(const Extent& size, std::vector<float> values) : values_(std::move(values)) {
    info_.size = size;
    info_.channels = 1;
    info_.type = DType::f32;
    info_.volume = true;
  }
  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override { return 0; }
  void read(int first, int count, void* to) override {
    CHECK(first == next_);
    next_ = first + count;
    const auto slice = static_cast<std::size_t>(info_.size.row_values());
    std::memcpy(to, values_.data() + static_cast<std::size_t>(first) * slice,
                static_cast<std::size_t>(count) * slice * sizeof(float));
  }

 private:
  const std::vector<float> values_;
  RegionInfo info_;
  int next_ = 0;
};

constexpr Extent volume_size{7, 9, 11};

/// A frame of a volume, and how often its file was opened.
struct VolumeFrame {
  explicit VolumeFrame(std::vector<float> values) {
    frame->columns.drop(pixels);
    frame->open_again = [this, values = std::move(values)] {
      ++opened;
      return std::make_shared<Volume>(volume_size, values);
    };
    frame->region = frame->open_again();
  }
  std::shared_ptr<Frame> frame = picture(0);
  int opened = 0;
};

Package package_of(const Scaling& scaling, std::size_t channels = 1) {
  Package package = semantic_package(2);
  package.channels.assign(channels, {0, 1});
  package.scaling = scaling;
  return package;
}

/// Values of all magnitudes and both signs, with many zeros of both signs.
std::vector<float> wide_values(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (std::int64_t i = 0; i < volume_size.values(); ++i) {
    const float magnitude =
        std::ldexp(1.0F + static_cast<float>(random() % 1000) / 1000, static_cast<int>(random() % 40) - 20);
    values.push_back(random() % 4 == 0   ? (random() % 2 == 0 ? 0.0F : -0.0F)
                     : random() % 2 == 0 ? magnitude
                                         : -magnitude);
  }
  return values;
}

double percentile(std::vector<float> values, double percent) {
  std::ranges::sort(values);
  const double place = static_cast<double>(values.size() - 1) * percent / 100;
  const auto below = static_cast<std::size_t>(place);
  const double from = values[below], to = values[std::min(below + 1, values.size() - 1)];
  return from + (to - from) * (place - static_cast<double>(below));
}

TEST_CASE("percentiles of real numbers are those of the sorted values, and the file is read twice") {
  for (const auto& [low, high] : {std::pair{0.0, 100.0}, {0.5, 99.5}, {25.0, 75.0}, {30.3, 70.9}, {99.0, 99.9}}) {
    for (unsigned seed = 0; seed < 5; ++seed) {
      const std::vector<float> values = wide_values(seed);
      VolumeFrame volume(values);
      WindowSource source;
      set_scaling(
          package_of({.kind = Scaling::Kind::percentiles, .percentiles = {low, high}, .clip_to_percentiles = true}),
          *volume.frame, source);
      CHECK(volume.opened == 3);
      CHECK(source.low[0] == doctest::Approx(percentile(values, low)).epsilon(1e-6));
      CHECK(source.high[0] == doctest::Approx(percentile(values, high)).epsilon(1e-6));
      CHECK(source.mean[0] == source.low[0]);
      CHECK(source.std[0] == source.high[0] - source.low[0]);
      std::vector<float> first(static_cast<std::size_t>(volume_size.row_values()));
      volume.frame->region->read(0, 1, first.data());  // the next reader begins at the first row
      CHECK(std::equal(first.begin(), first.end(), values.begin()));
    }
  }
}

TEST_CASE("mean and deviation are those of two slow passes, also far from zero") {
  for (const float offset : {0.0F, 1e6F}) {
    std::vector<float> values = wide_values(7);
    for (float& value : values) value = std::fmod(value, 100.0F) + offset;
    double sum = 0, squares = 0;
    for (const float value : values) sum += static_cast<double>(value);
    const double mean = sum / static_cast<double>(values.size());
    for (const float value : values)
      squares += (static_cast<double>(value) - mean) * (static_cast<double>(value) - mean);
    VolumeFrame volume(values);
    WindowSource source;
    set_scaling(package_of({.kind = Scaling::Kind::zscore}), *volume.frame, source);
    CHECK(volume.opened == 2);
    CHECK(source.mean[0] == static_cast<float>(mean));
    CHECK(source.std[0] == doctest::Approx(std::sqrt(squares / static_cast<double>(values.size()))).epsilon(1e-6));
    CHECK_FALSE(source.zero_stays);
  }
}

TEST_CASE("zeros do not count, or only those between other values") {
  std::vector<float> values(static_cast<std::size_t>(volume_size.values()));
  const auto at = [&](int z, int y, int x) -> float& {
    return values[static_cast<std::size_t>((z * volume_size.lines + y) * volume_size.columns + x)];
  };
  // The box of these three has 3 x 4 x 5 voxels.
  at(2, 3, 4) = 6;
  at(4, 3, 8) = 3;
  at(3, 6, 5) = 9;
  for (const auto& [of, count] : {std::pair{Scaling::Of::nonzero, 3.0}, {Scaling::Of::nonzero_box, 60.0}}) {
    VolumeFrame volume(values);
    WindowSource source;
    set_scaling(package_of({.kind = Scaling::Kind::zscore, .of = of}), *volume.frame, source);
    const double mean = 18 / count, mean_square = (36 + 9 + 81) / count;
    CHECK(source.mean[0] == doctest::Approx(mean));
    CHECK(source.std[0] == doctest::Approx(std::sqrt(mean_square - mean * mean)));
    CHECK(source.zero_stays == (of == Scaling::Of::nonzero));
  }
}

TEST_CASE("a volume of one value has finite scalings") {
  for (const float value : {0.0F, 5.5F, -3e38F}) {
    for (const Scaling& scaling :
         {Scaling{.kind = Scaling::Kind::zscore}, Scaling{.kind = Scaling::Kind::zscore, .of = Scaling::Of::nonzero},
          Scaling{.kind = Scaling::Kind::zscore, .of = Scaling::Of::nonzero_box},
          Scaling{.kind = Scaling::Kind::percentiles, .percentiles = {1, 99}, .clip_to_percentiles = true}}) {
      VolumeFrame volume(std::vector<float>(static_cast<std::size_t>(volume_size.values()), value));
      WindowSource source;
      set_scaling(package_of(scaling), *volume.frame, source);
      CHECK(scaled(value, source.scale, source.mean[0], source.std[0], source.low[0], source.high[0],
                   source.zero_stays) == 0);
    }
  }
}

TEST_CASE("values that are not finite have no statistics, unless clipping makes them finite") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), infinity, -infinity}) {
    std::vector<float> values = wide_values(1);
    values[static_cast<std::size_t>(volume_size.row_values()) * 3 + 5] = bad;
    for (const Scaling::Kind kind : {Scaling::Kind::zscore, Scaling::Kind::percentiles}) {
      VolumeFrame volume(values);
      WindowSource source;
      const Scaling scaling{.kind = kind, .percentiles = {1, 99}};
      CHECK_THROWS_WITH_AS(set_scaling(package_of(scaling), *volume.frame, source),
                           "slice 3 has values that are not finite, so the volume has no statistics; replace these "
                           "values in the file",
                           PictureError);
    }
    VolumeFrame volume(values);
    WindowSource source;
    const Scaling clipped{.kind = Scaling::Kind::zscore, .clip = {{-10, 20}}};
    if (std::isnan(bad)) {
      CHECK_THROWS_AS(set_scaling(package_of(clipped), *volume.frame, source), PictureError);
    } else {
      CHECK_NOTHROW(set_scaling(package_of(clipped), *volume.frame, source));
      CHECK(source.low[0] == -10);
      CHECK(source.high[0] == 20);
    }
  }
}

TEST_CASE("pictures have the statistics of each channel in the order of the planes, or of all channels") {
  for (const bool reversed : {false, true}) {
    auto frame = noise_picture(13, 17, 0, 1);
    const PixelBuffer raster = frame->columns.get(pixels);
    constexpr std::size_t count = 13 * 17;
    for (std::size_t i = 0; i < count; ++i) raster.data.get()[3 * i + 1] /= 2;  // green differs from red and blue
    std::vector<float> of_plane[3], all;
    for (std::size_t i = 0; i < 3 * count; ++i) {
      const auto value = static_cast<float>(raster.data.get()[i]);
      of_plane[reversed ? 2 - i % 3 : i % 3].push_back(value);
      all.push_back(value);
    }
    for (const bool channel_wise : {false, true}) {
      WindowSource source;
      source.reversed = reversed;
      set_scaling(
          package_of({.kind = Scaling::Kind::percentiles, .percentiles = {2, 97}, .channel_wise = channel_wise}, 3),
          *frame, source);
      for (std::size_t p = 0; p < 3; ++p) {
        const std::vector<float>& values = channel_wise ? of_plane[p] : all;
        CHECK(source.mean[p] == static_cast<float>(percentile(values, 2)));
        CHECK(source.mean[p] + source.std[p] == doctest::Approx(percentile(values, 97)));
        CHECK(source.high[p] == std::numeric_limits<float>::infinity());
      }
      set_scaling(package_of({.kind = Scaling::Kind::zscore, .channel_wise = channel_wise}, 3), *frame, source);
      for (std::size_t p = 0; p < 3; ++p) {
        const std::vector<float>& values = channel_wise ? of_plane[p] : all;
        double sum = 0;
        for (const float value : values) sum += static_cast<double>(value);
        CHECK(source.mean[p] == doctest::Approx(sum / static_cast<double>(values.size())));
      }
    }
  }
}

}  // namespace
}  // namespace millrace
