#include "stages/scaling.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "stages/decode.hpp"

namespace millrace {
namespace {

/// The source of the values that count; null: a picture that was decoded whole.
RegionSource* source_of(const Scaling& scaling, const Frame& frame) {
  RegionSource* const source = frame.region.get();
  RegionSource* const resampled = scaling.before_resampling && source != nullptr ? source->resampled() : nullptr;
  return resampled != nullptr ? resampled : source;
}

/// The facts of a picture or volume.
RegionInfo info_of(const Scaling& scaling, const Frame& frame) {
  if (const RegionSource* const source = source_of(scaling, frame)) return source->info();
  const PixelBuffer& raster = frame.columns.get(pixels);
  RegionInfo info;
  info.size = {raster.height, 1, raster.width};
  return info;
}

/// Calls visit(row, values) for each row, in the order of the file. `values` are [line][column][channel], limited to
/// the range of the package. A file that is read in parts is then opened again, for the next one who reads it.
template <class Visit>
void each_row(const Scaling& scaling, Frame& frame, Visit visit) {
  const RegionInfo info = info_of(scaling, frame);
  const std::size_t ranges = scaling.clip.size();
  RegionSource* const source = source_of(scaling, frame);
  const auto count = static_cast<std::size_t>(info.size.row_values() * info.channels);
  std::vector<float> values(count);
  std::vector<std::uint8_t> bytes(info.type == DType::u8 ? count : 0);
  for (int row = 0; row < info.size.rows; ++row) {
    const std::uint8_t* from = bytes.data();
    if (source == nullptr) {
      from = frame.columns.get(pixels).data.get() + static_cast<std::size_t>(row) * count;
    } else {
      source->read(row, 1, info.type == DType::u8 ? static_cast<void*>(bytes.data()) : values.data());
    }
    if (info.type == DType::u8) std::copy_n(from, count, values.begin());
    // A model with one channel may see a picture that has it three times.
    for (std::size_t i = 0; ranges > 0 && i < count; ++i) {
      const auto& [low, high] = scaling.clip[i % static_cast<std::size_t>(info.channels) % ranges];
      values[i] = values[i] < low ? low : values[i] > high ? high : values[i];
    }
    const bool finite = std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
    if (!finite)
      throw PictureError(Reason::non_finite, (info.volume ? "slice " : "row ") + std::to_string(row) +
                                                 " has values that are not finite, so the " +
                                                 (info.volume ? "volume" : "picture") +
                                                 " has no statistics; replace these values in the file");
    visit(row, std::span<const float>(values));
  }
  if (frame.region == nullptr) return;
  frame.region = nullptr;  // before the file is opened again: one source at a time is in memory
  frame.region = frame.open_again();
}

/// Number, mean and sum of squared deviations of values. Those of parts are added as Chan, Golub and LeVeque do (1979).
struct Moments {
  double count = 0, mean = 0, squares = 0;

  void add(const Moments& other) {
    if (other.count == 0) return;
    const double total = count + other.count, delta = other.mean - mean;
    squares += other.squares + delta * delta * count * other.count / total;
    mean += delta * other.count / total;
    count = total;
  }
};

/// Of every `step`-th value from `first` on.
Moments moments_of(std::span<const float> values, std::size_t first, std::size_t step, bool skip_zeros) {
  Moments found;
  const auto each = [&](auto visit) {
    for (std::size_t i = first; i < values.size(); i += step) {
      if (!skip_zeros || values[i] != 0) visit(static_cast<double>(values[i]));
    }
  };
  double sum = 0;
  each([&](double value) { sum += value, ++found.count; });
  if (found.count > 0) found.mean = sum / found.count;
  each([&](double value) { found.squares += (value - found.mean) * (value - found.mean); });
  return found;
}

/// The smallest box that has all places with a value other than zero.
class Box {
 public:
  void add(int row, const Extent& size, std::span<const float> values) {
    const std::size_t in_line = values.size() / static_cast<std::size_t>(size.lines);
    for (int line = 0; line < size.lines; ++line) {
      const auto of_line = values.subspan(static_cast<std::size_t>(line) * in_line, in_line);
      const auto is_value = [](float value) { return value != 0; };
      const auto first = std::ranges::find_if(of_line, is_value);
      if (first == of_line.end()) continue;
      const auto last = std::find_if(of_line.rbegin(), of_line.rend(), is_value);
      const auto channels = static_cast<std::ptrdiff_t>(in_line) / size.columns;
      rows_.add(row, row);
      lines_.add(line, line);
      columns_.add(static_cast<int>((first - of_line.begin()) / channels),
                   static_cast<int>((of_line.rend() - last - 1) / channels));
    }
  }
  /// The number of its places.
  double places() const { return rows_.length() * lines_.length() * columns_.length(); }

 private:
  struct Axis {
    int first = -1, last = -2;
    void add(int from, int to) {
      first = first < 0 ? from : std::min(first, from);
      last = std::max(last, to);
    }
    double length() const { return last < first ? 0 : last - first + 1; }
  };
  Axis rows_, lines_, columns_;
};

/// Mean and standard deviation of each channel, or of all together.
std::vector<std::pair<float, float>> zscores(const Scaling& scaling, Frame& frame) {
  const RegionInfo info = info_of(scaling, frame);
  const auto groups = static_cast<std::size_t>(scaling.channel_wise ? info.channels : 1);
  std::vector<Moments> moments(groups);
  Box box;
  each_row(scaling, frame, [&](int row, std::span<const float> values) {
    for (std::size_t g = 0; g < groups; ++g)
      moments[g].add(moments_of(values, g, groups, scaling.of != Scaling::Of::all));
    if (scaling.of == Scaling::Of::nonzero_box) box.add(row, info.size, values);
  });
  std::vector<std::pair<float, float>> found;
  for (Moments& of : moments) {
    // The zeros in the box.
    if (scaling.of == Scaling::Of::nonzero_box)
      of.add({.count = box.places() * (scaling.channel_wise ? 1 : info.channels) - of.count});
    const double deviation = of.count > 0 ? std::sqrt(of.squares / of.count) : 1;
    found.emplace_back(static_cast<float>(of.mean), std::max(static_cast<float>(deviation), 1e-8F));
  }
  return found;
}

/// Whole numbers in the order of the values.
std::uint32_t key_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
float value_of(std::uint32_t key) { return std::bit_cast<float>((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key); }

constexpr std::size_t halves = 1U << 16U;  // how many values half of a key has
using Counts = std::vector<std::int64_t>;  // by half of a key

/// The half of the value with this rank, and the rank among the values with this half.
std::pair<std::uint32_t, std::int64_t> find_rank(const Counts& counts, std::int64_t rank) {
  std::uint32_t half = 0;
  for (; rank >= counts[half]; ++half) rank -= counts[half];
  return {half, rank};
}

/// Finds values by rank, exactly: it counts the upper halves of their keys, then the lower halves where a rank lies.
class Ranked {
 public:
  void count_upper(std::uint32_t key) { ++upper_[key >> 16U]; }
  void ask(std::int64_t rank) { lower_.try_emplace(find_rank(upper_, rank).first, halves); }
  void count_lower(std::uint32_t key) {
    if (const auto found = lower_.find(key >> 16U); found != lower_.end()) ++found->second[key & 0xffffU];
  }
  /// Of values whose keys have lower halves of 0, `lower` need not be counted.
  float at(std::int64_t rank, bool lower) const {
    const auto [half, inside] = find_rank(upper_, rank);
    return value_of(half << 16U | (lower ? find_rank(lower_.at(half), inside).first : 0));
  }

 private:
  Counts upper_ = Counts(halves);
  std::map<std::uint32_t, Counts> lower_;
};

/// Two percentiles of each channel, or of all together, with the linear interpolation of numpy.percentile.
std::vector<std::array<float, 2>> percentiles_of(const Scaling& scaling, Frame& frame) {
  const RegionInfo info = info_of(scaling, frame);
  const auto groups = static_cast<std::size_t>(scaling.channel_wise ? info.channels : 1);
  std::vector<Ranked> ranked(groups);
  const auto each_value = [&](auto visit) {
    each_row(scaling, frame, [&](int /*row*/, std::span<const float> values) {
      for (std::size_t i = 0; i < values.size(); ++i) visit(ranked[i % groups], key_of(values[i]));
    });
  };
  each_value([](Ranked& of, std::uint32_t key) { of.count_upper(key); });
  const std::int64_t last =
      info.size.values() * info.channels / static_cast<std::int64_t>(groups) - 1;  // the highest rank
  std::array<std::int64_t, 2> below{}, above{};
  std::array<double, 2> share{};
  for (std::size_t i = 0; i < 2; ++i) {
    const double percent = i == 0 ? scaling.percentiles.first : scaling.percentiles.second;
    const double place = static_cast<double>(last) * (percent / 100);
    below[i] = std::min(static_cast<std::int64_t>(place), last);
    above[i] = std::min(below[i] + 1, last);
    share[i] = place - static_cast<double>(below[i]);
    for (Ranked& of : ranked) of.ask(below[i]), of.ask(above[i]);
  }
  const bool lower = info.type != DType::u8;  // whole numbers up to 256 have lower halves of 0
  if (lower) each_value([](Ranked& of, std::uint32_t key) { of.count_lower(key); });
  std::vector<std::array<float, 2>> found(groups);
  for (std::size_t g = 0; g < groups; ++g) {
    for (std::size_t i = 0; i < 2; ++i) {
      const double from = ranked[g].at(below[i], lower), to = ranked[g].at(above[i], lower), step = to - from;
      found[g][i] = static_cast<float>(share[i] < 0.5 ? from + step * share[i] : to - step * (1 - share[i]));
    }
  }
  return found;
}

/// Sets the members of `source` that set_scaling() sets.
void find_scaling(const Package& package, Frame& frame, WindowSource& source) {
  Scaling scaling = package.scaling;
  source.scale = package.input.scale;
  source.zero_stays = scaling.kind == Scaling::Kind::zscore && scaling.of == Scaling::Of::nonzero;
  for (std::size_t p = 0; p < scaling.clip.size(); ++p) std::tie(source.low[p], source.high[p]) = scaling.clip[p];
  // The statistics are of the channels of the file.
  if (source.reversed) std::ranges::reverse(scaling.clip);
  const std::size_t planes = package.channels.size();
  if (planes == 1) scaling.channel_wise = true;  // the picture may have the same channel three times
  for (std::size_t p = 0; p < planes; ++p) std::tie(source.mean[p], source.std[p]) = package.channels[p];
  if (scaling.kind == Scaling::Kind::constant) return;
  const auto group_of = [&](std::size_t plane) {
    return scaling.channel_wise ? (source.reversed ? planes - 1 - plane : plane) : 0;
  };
  if (scaling.kind == Scaling::Kind::zscore) {
    const auto found = zscores(scaling, frame);
    for (std::size_t p = 0; p < planes; ++p) std::tie(source.mean[p], source.std[p]) = found[group_of(p)];
    return;
  }
  const auto found = percentiles_of(scaling, frame);
  for (std::size_t p = 0; p < planes; ++p) {
    const auto [low, high] = found[group_of(p)];
    source.mean[p] = low;
    const bool equal = high - low == 0;  // then MONAI neither divides nor clips
    source.std[p] = equal ? 1 : high - low;
    if (equal || !scaling.clip_to_percentiles) continue;
    source.low[p] = low;
    source.high[p] = high;
  }
}

/// Scales values [line][column][channel] in place, as windows are scaled when they are cut.
void scale(const WindowSource& by, std::span<float> values) {
  const auto channels = static_cast<std::size_t>(by.channels);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t c = i % channels;
    values[i] = scaled(values[i], by.scale, by.mean[c], by.std[c], by.low[c], by.high[c], by.zero_stays);
  }
}

}  // namespace

void set_scaling(const Package& package, Frame& frame, WindowSource& source) {
  find_scaling(package, frame, source);
  if (!package.scaling.before_resampling || frame.region == nullptr || frame.region->resampled() == nullptr) return;
  const WindowSource plain;
  WindowSource by = source;
  by.channels = static_cast<int>(package.channels.size());
  frame.region->change_first([by](std::span<float> values) { scale(by, values); });
  source.scale = plain.scale;
  source.zero_stays = plain.zero_stays;
  source.low = plain.low;
  source.high = plain.high;
  source.mean.fill(0);
  source.std.fill(1);
}

std::int64_t scaling_bytes(const Package& package, std::int64_t row_values) {
  const Scaling& scaling = package.scaling;
  if (scaling.kind == Scaling::Kind::constant) return 0;
  const std::int64_t groups = scaling.channel_wise ? static_cast<std::int64_t>(package.channels.size()) : 1;
  // Up to four ranks lie in different halves.
  const std::int64_t counts = scaling.kind == Scaling::Kind::percentiles ? 5 * groups * std::int64_t{halves} * 8 : 0;
  return row_values * static_cast<std::int64_t>(sizeof(float) + 1) + counts;
}

}  // namespace millrace
