#include "stages/scaling.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "stages/decode.hpp"

namespace millrace {
namespace {

/// The source of the values that count; null: a picture that was decoded whole.
RegionSource* source_of(const Package& package, const Frame& frame) {
  RegionSource* const source = frame.region.get();
  RegionSource* const resampled = package.scaled_before_resampling && source != nullptr ? source->resampled() : nullptr;
  return resampled != nullptr ? resampled : source;
}

/// The facts of a picture or volume.
RegionInfo info_of(const Package& package, const Frame& frame) {
  if (const RegionSource* const source = source_of(package, frame)) return source->info();
  const PixelBuffer& raster = frame.columns.get(pixels);
  RegionInfo info;
  info.size = {raster.height, 1, raster.width};
  return info;
}

/// Calls visit(row, values) for each row, in the order of the file. `values` are [line][column][channel], which visit()
/// may change. A file that is read in parts is then opened again, for the next one who reads it.
template <class Visit>
void each_row(const Package& package, Frame& frame, Visit visit) {
  const RegionInfo info = info_of(package, frame);
  RegionSource* const source = source_of(package, frame);
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
    visit(row, std::span<float>(values));
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

/// Whole numbers in the order of the values.
std::uint32_t key_of(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
float value_of(std::uint32_t key) { return std::bit_cast<float>((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key); }

constexpr std::size_t halves = 1U << 16U;  // how many values half of a key has
using Counts = std::vector<std::int64_t>;  // by half of a key

/// Whole numbers up to 256 have lower halves of 0.
bool has_lower_halves(const RegionInfo& info) { return info.type != DType::u8; }

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

float limited(const Scaling& scaling, float value) {
  if (!scaling.clip) return value;
  const auto [low, high] = *scaling.clip;
  return value < low ? low : value > high ? high : value;
}

/// Values with one mean and deviation, or one pair of percentiles: those of a channel, or of all channels.
class Group {
 public:
  /// Every `step`-th value of a row from `first` on.
  Group(const Scaling& scaling, std::size_t first, std::size_t step) : scaling_(scaling), first_(first), step_(step) {
    if (by_rank()) ranked_.emplace();
    if (scaling.kind != Scaling::Kind::zscore || scaling.of == Scaling::Of::all) return;
    skipped_ = in_box() ? limited(scaling, 0) : 0;
  }

  bool in_box() const { return scaling_.kind == Scaling::Kind::zscore && scaling_.of == Scaling::Of::nonzero_box; }
  bool by_rank() const { return scaling_.kind == Scaling::Kind::percentiles; }

  /// Limits the values of a row to the range of the package, in place. Returns whether all are finite.
  bool limit(std::span<float> values) const {
    bool finite = true;
    for (std::size_t i = first_; i < values.size(); i += step_) {
      values[i] = limited(scaling_, values[i]);
      finite = finite && std::isfinite(values[i]);
    }
    return finite;
  }

  /// Takes a row into account.
  void add(std::span<const float> values) {
    if (by_rank()) {
      each(values, [&](float value) { ranked_->count_upper(key_of(value)); });
      return;
    }
    Moments of_row;
    double sum = 0;
    each(values, [&](float value) { sum += static_cast<double>(value), ++of_row.count; });
    if (of_row.count > 0) of_row.mean = sum / of_row.count;
    each(values, [&](float value) {
      const double delta = static_cast<double>(value) - of_row.mean;
      of_row.squares += delta * delta;
    });
    moments_.add(of_row);
  }

  /// Percentiles: after all rows, asks for ranks. Then add_again() needs all rows once more, unless they are of 8 bits.
  void ask(const RegionInfo& info) {
    for (const double percent : {scaling_.percentiles.first, scaling_.percentiles.second}) {
      const Place place = place_of(info, percent);
      ranked_->ask(place.below), ranked_->ask(place.above);
    }
  }
  void add_again(std::span<const float> values) {
    each(values, [&](float value) { ranked_->count_lower(key_of(value)); });
  }

  /// Sets the mean and the standard deviation, or the percentiles.
  void finish(const RegionInfo& info, const Box& box) {
    if (by_rank()) {
      first_value_ = percentile(info, scaling_.percentiles.first);
      second_value_ = percentile(info, scaling_.percentiles.second);
      return;
    }
    // The zeros in the box.
    if (in_box()) moments_.add({.count = box.places() * channels(info) - moments_.count, .mean = skipped_});
    const double deviation = moments_.count > 0 ? std::sqrt(moments_.squares / moments_.count) : 1;
    first_value_ = static_cast<float>(moments_.mean);
    second_value_ = std::max(static_cast<float>(deviation), 1e-8F);
  }

  /// After finish().
  void apply(PlaneScaling& plane) const {
    plane.mean = first_value_;
    if (!by_rank()) {
      plane.std = second_value_;
      return;
    }
    const bool equal = second_value_ - first_value_ == 0;  // then MONAI neither divides nor clips
    plane.std = equal ? 1 : second_value_ - first_value_;
    if (equal || !scaling_.clip_to_percentiles) return;
    plane.low = first_value_;
    plane.high = second_value_;
  }

 private:
  /// Where a percentile lies: between two ranks.
  struct Place {
    std::int64_t below = 0, above = 0;
    double share = 0;  ///< of the way to the upper one
  };

  template <class Visit>
  void each(std::span<const float> values, Visit visit) const {
    for (std::size_t i = first_; i < values.size(); i += step_) {
      if (values[i] != skipped_) visit(values[i]);
    }
  }

  double channels(const RegionInfo& info) const {
    return static_cast<double>(info.channels) / static_cast<double>(step_);
  }

  Place place_of(const RegionInfo& info, double percent) const {
    // The highest rank.
    const std::int64_t last = info.size.values() * info.channels / static_cast<std::int64_t>(step_) - 1;
    const double place = static_cast<double>(last) * (percent / 100);
    const std::int64_t below = std::min(static_cast<std::int64_t>(place), last);
    return {below, std::min(below + 1, last), place - static_cast<double>(below)};
  }

  /// With the linear interpolation of numpy.percentile.
  float percentile(const RegionInfo& info, double percent) const {
    const Place place = place_of(info, percent);
    const bool lower = has_lower_halves(info);
    const double from = ranked_->at(place.below, lower), to = ranked_->at(place.above, lower), step = to - from;
    return static_cast<float>(place.share < 0.5 ? from + step * place.share : to - step * (1 - place.share));
  }

  Scaling scaling_;
  std::size_t first_, step_;
  /// A value that does not count, or that finish() adds. Nothing equals NaN.
  float skipped_ = std::numeric_limits<float>::quiet_NaN();
  Moments moments_;
  std::optional<Ranked> ranked_;
  float first_value_ = 0, second_value_ = 0;
};

/// Finds the statistics of all groups: with one pass for z-scores, and with one or two for percentiles.
void measure(const Package& package, Frame& frame, std::vector<Group>& groups) {
  const RegionInfo info = info_of(package, frame);
  const bool in_box = std::ranges::any_of(groups, &Group::in_box);
  Box box;
  each_row(package, frame, [&](int row, std::span<float> values) {
    // Before values are limited: nnU-Net cuts volumes first, by the values of the file in all channels.
    if (in_box) box.add(row, info.size, values);
    for (Group& group : groups) {
      if (!group.limit(values))
        throw PictureError(Reason::non_finite, (info.volume ? "slice " : "row ") + std::to_string(row) +
                                                   " has values that are not finite, so the " +
                                                   (info.volume ? "volume" : "picture") +
                                                   " has no statistics; replace these values in the file");
      group.add(values);
    }
  });
  const auto by_rank = [&](auto visit) {
    for (Group& group : groups) {
      if (group.by_rank()) visit(group);
    }
  };
  by_rank([&](Group& group) { group.ask(info); });
  if (std::ranges::any_of(groups, &Group::by_rank) && has_lower_halves(info)) {
    each_row(package, frame,
             [&](int /*row*/, std::span<float> values) { by_rank([&](Group& group) { group.add_again(values); }); });
  }
  for (Group& group : groups) group.finish(info, box);
}

/// Sets `source.scaling`.
void find_scaling(const Package& package, Frame& frame, WindowSource& source) {
  const std::size_t planes = package.channels.size();
  // The statistics are of the channels of the file. A model with one channel may see a picture that has it three times.
  const bool each = package.channel_wise || planes == 1;
  const auto file_channels = static_cast<std::size_t>(info_of(package, frame).channels);
  std::vector<Group> groups;
  std::array<std::size_t, max_channels> group_of{};
  for (std::size_t p = 0; p < planes; ++p) {
    const Scaling& scaling = package.channels[p];
    PlaneScaling& plane = source.scaling[p];
    plane = {.scale = scaling.scale,
             .mean = scaling.mean,
             .std = scaling.std,
             .zero_stays = scaling.kind == Scaling::Kind::zscore && scaling.of == Scaling::Of::nonzero};
    if (scaling.clip) std::tie(plane.low, plane.high) = *scaling.clip;
    if (scaling.kind == Scaling::Kind::constant) continue;
    if (each) {
      groups.emplace_back(scaling, source.reversed ? planes - 1 - p : p, file_channels);
    } else if (groups.empty()) {
      groups.emplace_back(scaling, 0, 1);
    }
    group_of[p] = groups.size() - 1;
  }
  if (groups.empty()) return;
  measure(package, frame, groups);
  for (std::size_t p = 0; p < planes; ++p) {
    if (package.channels[p].kind != Scaling::Kind::constant) groups[group_of[p]].apply(source.scaling[p]);
  }
}

}  // namespace

void set_scaling(const Package& package, Frame& frame, WindowSource& source) {
  find_scaling(package, frame, source);
  if (!package.scaled_before_resampling || frame.region == nullptr || frame.region->resampled() == nullptr) return;
  frame.region->change_first([by = source.scaling, channels = package.channels.size()](std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = scaled(values[i], by[i % channels]);
  });
  source.scaling = {};
}

std::int64_t scaling_bytes(const Package& package, std::int64_t row_values) {
  const auto count_of = [&](Scaling::Kind kind) { return std::ranges::count(package.channels, kind, &Scaling::kind); };
  const auto channels = std::ssize(package.channels);
  if (count_of(Scaling::Kind::constant) == channels) return 0;
  const std::int64_t by_rank = count_of(Scaling::Kind::percentiles);
  const std::int64_t groups = package.channel_wise ? by_rank : std::min<std::int64_t>(by_rank, 1);
  // Up to four ranks lie in different halves.
  const std::int64_t counts = 5 * groups * std::int64_t{halves} * 8;
  return row_values * static_cast<std::int64_t>(sizeof(float) + 1) + counts;
}

}  // namespace millrace
