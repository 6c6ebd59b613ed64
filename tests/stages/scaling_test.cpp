#include "stages/scaling.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tests/stages/semantic_world.hpp"

namespace millrace {
namespace {

/// A volume in memory, read forwards like a compressed file.
class Volume final : public RegionSource {
 public:
  Volume(const Extent& size, std::vector<float> values, int channels) : values_(std::move(values)) {
    info_.size = size;
    info_.channels = channels;
    info_.type = DType::f32;
    info_.volume = true;
  }
  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override { return 0; }
  void read(int first, int count, void* to) override {
    CHECK(first == next_);
    next_ = first + count;
    const auto slice = static_cast<std::size_t>(info_.size.row_values() * info_.channels);
    std::memcpy(to, values_.data() + static_cast<std::size_t>(first) * slice,
                static_cast<std::size_t>(count) * slice * sizeof(float));
  }

 private:
  const std::vector<float> values_;
  RegionInfo info_;
  int next_ = 0;
};

/// A volume that stands for a resampled one: it names the volume before, and changes values as asked.
class Resampled final : public RegionSource {
 public:
  explicit Resampled(std::shared_ptr<Volume> from) : from_(std::move(from)) {}
  const RegionInfo& info() const override { return from_->info(); }
  std::int64_t memory_bytes() const override { return 0; }
  void read(int first, int count, void* to) override {
    from_->read(first, count, to);
    const auto values = static_cast<std::size_t>(info().size.row_values() * info().channels * count);
    if (change_) change_({static_cast<float*>(to), values});
  }
  RegionSource* resampled() override { return from_.get(); }
  void change_first(Change change) override { change_ = std::move(change); }

 private:
  std::shared_ptr<Volume> from_;
  Change change_;
};

constexpr Extent volume_size{7, 9, 11};

/// A frame of a volume, and how often its file was opened.
struct VolumeFrame {
  explicit VolumeFrame(std::vector<float> values, int channels = 1, bool resampled = false) {
    frame->columns.drop(pixels);
    frame->open_again = [this, channels, resampled, values = std::move(values)]() -> std::shared_ptr<RegionSource> {
      ++opened;
      const auto volume = std::make_shared<Volume>(volume_size, values, channels);
      if (resampled) return std::make_shared<Resampled>(volume);
      return volume;
    };
    frame->region = frame->open_again();
  }
  std::shared_ptr<Frame> frame = picture(0);
  int opened = 0;
};

Package package_of(std::vector<Scaling> channels, bool channel_wise) {
  Package package = semantic_package(2);
  package.channels = std::move(channels);
  package.channel_wise = channel_wise;
  return package;
}

Package package_of(const Scaling& scaling) { return package_of({scaling}, false); }

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
      CHECK(source.scaling[0].low == doctest::Approx(percentile(values, low)).epsilon(1e-6));
      CHECK(source.scaling[0].high == doctest::Approx(percentile(values, high)).epsilon(1e-6));
      CHECK(source.scaling[0].mean == source.scaling[0].low);
      CHECK(source.scaling[0].std == source.scaling[0].high - source.scaling[0].low);
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
    CHECK(source.scaling[0].mean == static_cast<float>(mean));
    CHECK(source.scaling[0].std ==
          doctest::Approx(std::sqrt(squares / static_cast<double>(values.size()))).epsilon(1e-6));
    CHECK_FALSE(source.scaling[0].zero_stays);
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
    CHECK(source.scaling[0].mean == doctest::Approx(mean));
    CHECK(source.scaling[0].std == doctest::Approx(std::sqrt(mean_square - mean * mean)));
    CHECK(source.scaling[0].zero_stays == (of == Scaling::Of::nonzero));
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
      CHECK(scaled(value, source.scaling[0]) == 0);
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
      CHECK(source.scaling[0].low == -10);
      CHECK(source.scaling[0].high == 20);
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
      set_scaling(package_of(std::vector<Scaling>(3, {.kind = Scaling::Kind::percentiles, .percentiles = {2, 97}}),
                             channel_wise),
                  *frame, source);
      for (std::size_t p = 0; p < 3; ++p) {
        const std::vector<float>& values = channel_wise ? of_plane[p] : all;
        CHECK(source.scaling[p].mean == static_cast<float>(percentile(values, 2)));
        CHECK(source.scaling[p].mean + source.scaling[p].std == doctest::Approx(percentile(values, 97)));
        CHECK(source.scaling[p].high == std::numeric_limits<float>::infinity());
      }
      set_scaling(package_of(std::vector<Scaling>(3, {.kind = Scaling::Kind::zscore}), channel_wise), *frame, source);
      for (std::size_t p = 0; p < 3; ++p) {
        const std::vector<float>& values = channel_wise ? of_plane[p] : all;
        double sum = 0;
        for (const float value : values) sum += static_cast<double>(value);
        CHECK(source.scaling[p].mean == doctest::Approx(sum / static_cast<double>(values.size())));
      }
    }
  }
}

/// Channel `channel` of values [place][channel].
std::vector<double> of_channel(const std::vector<float>& values, std::size_t channels, std::size_t channel) {
  std::vector<double> found;
  for (std::size_t i = channel; i < values.size(); i += channels) found.push_back(static_cast<double>(values[i]));
  return found;
}

/// What becomes of channel `channel`, by slow loops in double precision over all of its values.
std::vector<double> slow_scaling(const Scaling& by, const Extent& size, const std::vector<float>& values,
                                 std::size_t channels, std::size_t channel) {
  std::vector<double> all = of_channel(values, channels, channel);
  if (by.clip) {
    for (double& value : all)
      value = std::clamp(value, static_cast<double>(by.clip->first), static_cast<double>(by.clip->second));
  }
  const auto scale_all = [&](double scale, double mean, double std) {
    for (double& value : all) value = (value * scale - mean) / std;
  };
  if (by.kind == Scaling::Kind::constant) {
    scale_all(static_cast<double>(by.scale), static_cast<double>(by.mean), static_cast<double>(by.std));
    return all;
  }
  if (by.kind == Scaling::Kind::percentiles) {
    std::vector<float> own(all.begin(), all.end());
    const double low = percentile(own, by.percentiles.first), high = percentile(own, by.percentiles.second);
    if (by.clip_to_percentiles) {
      for (double& value : all) value = std::clamp(value, low, high);
    }
    scale_all(1, low, high - low);
    return all;
  }
  // The box of the places where the file has a value other than zero in any channel.
  Extent first = size, last{-1, -1, -1};
  const auto place_of = [&](std::size_t place) {
    const auto columns = static_cast<std::size_t>(size.columns), lines = static_cast<std::size_t>(size.lines);
    return Extent{static_cast<int>(place / columns / lines), static_cast<int>(place / columns % lines),
                  static_cast<int>(place % columns)};
  };
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] == 0) continue;
    const Extent at = place_of(i / channels);
    first = {std::min(first.rows, at.rows), std::min(first.lines, at.lines), std::min(first.columns, at.columns)};
    last = {std::max(last.rows, at.rows), std::max(last.lines, at.lines), std::max(last.columns, at.columns)};
  }
  std::vector<double> counted;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const Extent at = place_of(i);
    const bool inside = at.rows >= first.rows && at.rows <= last.rows && at.lines >= first.lines &&
                        at.lines <= last.lines && at.columns >= first.columns && at.columns <= last.columns;
    if (by.of == Scaling::Of::all || (by.of == Scaling::Of::nonzero ? all[i] != 0 : inside)) counted.push_back(all[i]);
  }
  double sum = 0, squares = 0;
  for (const double value : counted) sum += value;
  const double mean = sum / static_cast<double>(counted.size());
  for (const double value : counted) squares += (value - mean) * (value - mean);
  const double deviation = std::sqrt(squares / static_cast<double>(counted.size()));
  for (double& value : all) value = by.of == Scaling::Of::nonzero && value == 0 ? 0 : (value - mean) / deviation;
  return all;
}

/// Values of all magnitudes in a box of the volume, and zeros around it. The ranges of channels differ.
std::vector<float> boxed_values(std::size_t channels, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> values;
  for (int z = 0; z < volume_size.rows; ++z) {
    for (int y = 0; y < volume_size.lines; ++y) {
      for (int x = 0; x < volume_size.columns; ++x) {
        for (std::size_t c = 0; c < channels; ++c) {
          const bool inside = z > 0 && y > 1 && y < 7 && x > 2 && x < 10 && random() % 5 > 0;
          values.push_back(inside ? static_cast<float>(random() % 4000) / 16 - 50 * static_cast<float>(c % 3) : 0.0F);
        }
      }
    }
  }
  return values;
}

// All kinds, each next to others. The first one has no statistics.
const std::vector<Scaling> mixed{
    {.clip = {{-20, 60}}, .scale = 0.5F, .mean = 4, .std = 8},
    {.kind = Scaling::Kind::zscore},
    {.kind = Scaling::Kind::zscore, .clip = {{-30, 90}}, .of = Scaling::Of::nonzero},
    {.kind = Scaling::Kind::zscore, .of = Scaling::Of::nonzero_box},
    {.kind = Scaling::Kind::percentiles, .percentiles = {2.5, 97.5}, .clip_to_percentiles = true},
    {.kind = Scaling::Kind::percentiles, .percentiles = {4, 94}},
    {.kind = Scaling::Kind::zscore, .clip = {{5, 40}}, .of = Scaling::Of::nonzero_box}};

/// The number of values that differ from the slow loops. `found` is scaled [place][channel], in the order of the file.
int count_wrong(const std::vector<Scaling>& channels, const Extent& size, const std::vector<float>& values,
                const std::vector<float>& found) {
  int wrong = 0;
  for (std::size_t c = 0; c < channels.size(); ++c) {
    const std::vector<double> expected = slow_scaling(channels[c], size, values, channels.size(), c),
                              own = of_channel(found, channels.size(), c);
    REQUIRE(own.size() == expected.size());
    for (std::size_t i = 0; i < own.size(); ++i)
      wrong += std::abs(own[i] - expected[i]) <= 2e-6 * std::max(1.0, std::abs(expected[i])) ? 0 : 1;
  }
  return wrong;
}

TEST_CASE("channels of a volume are scaled in different ways, each by its own values") {
  for (const bool before : {false, true}) {
    for (const bool resampled : {false, true}) {
      const std::vector<float> values = boxed_values(mixed.size(), 3);
      VolumeFrame volume(values, static_cast<int>(mixed.size()), resampled);
      Package package = package_of(mixed, true);
      package.scaled_before_resampling = before;
      WindowSource source;
      set_scaling(package, *volume.frame, source);
      CHECK(volume.opened == 3);
      std::vector<float> found(values.size());
      volume.frame->region->read(0, volume_size.rows, found.data());
      for (std::size_t i = 0; i < found.size(); ++i) found[i] = scaled(found[i], source.scaling[i % mixed.size()]);
      CHECK(count_wrong(mixed, volume_size, values, found) == 0);
      // Windows then get the values of the source as they are.
      if (before && resampled) CHECK(source.scaling[3].mean == 0);
    }
  }
}

TEST_CASE("a file is read only as often as the statistics of its channels need") {
  for (const auto& [kinds, opened] :
       {std::pair{std::vector<std::size_t>{0, 0}, 1}, {{0, 1}, 2}, {{3, 0}, 2}, {{4, 1}, 3}, {{0, 5}, 3}}) {
    VolumeFrame volume(boxed_values(2, 1), 2);
    WindowSource source;
    set_scaling(package_of({mixed[kinds[0]], mixed[kinds[1]]}, true), *volume.frame, source);
    CHECK(volume.opened == opened);
  }
}

TEST_CASE("pictures of 8 bits are scaled in different ways in each channel") {
  const auto frame = noise_picture(13, 17, 0, 1);
  const PixelBuffer raster = frame->columns.get(pixels);
  const std::span<std::uint8_t> bytes(raster.data.get(), std::size_t{13} * 17 * 3);
  std::ranges::fill(bytes.first(std::size_t{17} * 3), std::uint8_t{0});
  const std::vector<float> values(bytes.begin(), bytes.end());
  for (const auto& order : {std::array<std::size_t, 3>{0, 1, 4}, {5, 6, 0}, {3, 4, 2}}) {
    const std::vector<Scaling> three{mixed[order[0]], mixed[order[1]], mixed[order[2]]};
    WindowSource source;
    set_scaling(package_of(three, true), *frame, source);
    std::vector<float> found;
    for (std::size_t i = 0; i < values.size(); ++i) found.push_back(scaled(values[i], source.scaling[i % 3]));
    CHECK(count_wrong(three, {raster.height, 1, raster.width}, values, found) == 0);
  }
}

TEST_CASE("the box is that of the values in the file, before they are limited, and of all channels") {
  // Channel 0 has two values at opposite corners of a box of 3 x 4 x 5 places. Its range turns both to its lower end.
  std::vector<float> values(static_cast<std::size_t>(volume_size.values()) * 2);
  const auto at = [&](int z, int y, int x, std::size_t channel) -> float& {
    return values[static_cast<std::size_t>((z * volume_size.lines + y) * volume_size.columns + x) * 2 + channel];
  };
  at(2, 3, 4, 0) = -700;
  at(4, 6, 8, 0) = -900;
  at(3, 4, 5, 1) = 6;
  for (const Scaling& first :
       {Scaling{.clip = {{0, 100}}}, Scaling{.kind = Scaling::Kind::zscore, .clip = {{0, 100}}}}) {
    VolumeFrame volume(values, 2);
    WindowSource source;
    set_scaling(package_of({first, {.kind = Scaling::Kind::zscore, .of = Scaling::Of::nonzero_box}}, true),
                *volume.frame, source);
    CHECK(source.scaling[1].mean == doctest::Approx(6.0 / 60));
    CHECK(source.scaling[1].std == doctest::Approx(std::sqrt(36.0 / 60 - 0.01)));
  }
  // Alone, with a range that zeros are not in: those in the box become 2, and count.
  VolumeFrame alone(values, 2);
  WindowSource source;
  set_scaling(
      package_of({{}, {.kind = Scaling::Kind::zscore, .clip = {{2, 100}}, .of = Scaling::Of::nonzero_box}}, true),
      *alone.frame, source);
  CHECK(source.scaling[1].mean == doctest::Approx((6.0 + 59 * 2) / 60));
}

TEST_CASE("values that are not finite matter in channels with statistics alone") {
  for (const std::size_t bad : {0, 1}) {
    std::vector<float> values = boxed_values(2, 1);
    values[static_cast<std::size_t>(volume_size.row_values()) * 2 * 3 + 8 + bad] =
        std::numeric_limits<float>::quiet_NaN();
    VolumeFrame volume(values, 2);
    WindowSource source;
    const auto set = [&] {
      set_scaling(package_of({{}, {.kind = Scaling::Kind::zscore}}, true), *volume.frame, source);
    };
    if (bad == 0) {
      CHECK_NOTHROW(set());
    } else {
      CHECK_THROWS_AS(set(), PictureError);
    }
  }
}

TEST_CASE("memory for percentiles is that of the channels that have them") {
  const std::int64_t one = scaling_bytes(package_of({mixed[4]}, false), 100);
  CHECK(one == 100 * 5 + 5 * 65536 * 8);
  CHECK(scaling_bytes(package_of({mixed[0], mixed[4], mixed[1]}, true), 100) == one);
  CHECK(scaling_bytes(package_of({mixed[4], mixed[4], mixed[4]}, false), 100) == one);
  CHECK(scaling_bytes(package_of({mixed[4], mixed[5]}, true), 100) == one + 5 * 65536 * 8);
  CHECK(scaling_bytes(package_of({mixed[0], mixed[1]}, true), 100) == 500);
  CHECK(scaling_bytes(package_of({mixed[0], mixed[0]}, true), 100) == 0);
}

}  // namespace
}  // namespace millrace
