#include "run/resampled_volume.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "io/files/decode_error.hpp"

namespace millrace {
namespace {

/// The two voxels of an axis between which a value lies, and the weight of the second one.
struct Tap {
  int low = 0, high = 0;
  float weight = 0;
};

std::vector<Tap> taps_of(int from, int to) {
  std::vector<Tap> taps(static_cast<std::size_t>(to));
  for (int i = 0; i < to; ++i) {
    const double place = std::clamp((i + 0.5) * from / to - 0.5, 0.0, from - 1.0);
    Tap& tap = taps[static_cast<std::size_t>(i)];
    tap.low = static_cast<int>(place);
    tap.weight = static_cast<float>(place - tap.low);
    tap.high = tap.weight > 0 ? tap.low + 1 : tap.low;  // a value without weight may be infinite
  }
  return taps;
}

void mix(const float* low, const float* high, float weight, std::size_t count, float* to) {
  if (weight == 0) {
    std::copy_n(low, count, to);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) to[i] = (1 - weight) * low[i] + weight * high[i];
}

class ResampledVolume final : public RegionSource {
 public:
  ResampledVolume(std::shared_ptr<RegionSource> source, const RegionInfo& info)
      : source_(std::move(source)),
        from_(source_->info().size),
        info_(info),
        rows_(taps_of(from_.rows, info.size.rows)),
        lines_(taps_of(from_.lines, info.size.lines)),
        columns_(taps_of(from_.columns, info.size.columns)) {}

  const RegionInfo& info() const override { return info_; }

  std::int64_t memory_bytes() const override {
    const std::int64_t values =
        (from_.row_values() + 2 * info_.size.row_values() + from_.columns) * std::int64_t{info_.channels};
    return source_->memory_bytes() + values * std::int64_t{sizeof(float)};
  }

  RegionSource* resampled() override { return source_.get(); }
  void change_first(Change change) override { change_ = std::move(change); }

  void read(int first, int count, void* to) override {
    // Not before: the gate grants these bytes after the file was opened.
    const auto channels = static_cast<std::size_t>(info_.channels);
    slice_.resize(static_cast<std::size_t>(from_.row_values()) * channels);
    line_.resize(static_cast<std::size_t>(from_.columns) * channels);
    const std::size_t values = static_cast<std::size_t>(info_.size.row_values()) * channels;
    auto* out = static_cast<float*>(to);
    for (int row = first; row < first + count; ++row, out += values) {
      const Tap& tap = rows_[static_cast<std::size_t>(row)];
      load(tap.low, tap.high);
      mix(kept(tap.low).data(), kept(tap.high).data(), tap.weight, values, out);
    }
  }

 private:
  // A slice that was read last is in one place of two, so the one before it is in the other.
  std::vector<float>& kept(int slice) { return kept_[static_cast<std::size_t>(slice % 2)]; }

  // Slices before `low` are not needed any more.
  void load(int low, int high) {
    for (int slice = std::max(next_, low); slice <= high; ++slice) {
      source_->read(slice, 1, slice_.data());
      next_ = slice + 1;
      if (change_) change_(slice_);
      resample_slice(kept(slice));
    }
  }

  void resample_slice(std::vector<float>& to) {
    const auto channels = static_cast<std::size_t>(info_.channels);
    to.resize(static_cast<std::size_t>(info_.size.row_values()) * channels);
    float* out = to.data();
    const std::size_t in_line = static_cast<std::size_t>(from_.columns) * channels;
    for (const Tap& line : lines_) {
      mix(slice_.data() + static_cast<std::size_t>(line.low) * in_line,
          slice_.data() + static_cast<std::size_t>(line.high) * in_line, line.weight, in_line, line_.data());
      for (const Tap& column : columns_) {
        const float *const low = line_.data() + static_cast<std::size_t>(column.low) * channels,
                           *const high = line_.data() + static_cast<std::size_t>(column.high) * channels;
        for (std::size_t c = 0; c < channels; ++c)
          *out++ = column.weight == 0 ? low[c] : (1 - column.weight) * low[c] + column.weight * high[c];
      }
    }
  }

  const std::shared_ptr<RegionSource> source_;
  const Extent from_;
  const RegionInfo info_;
  const std::vector<Tap> rows_, lines_, columns_;
  Change change_;
  std::vector<float> slice_, line_;
  std::array<std::vector<float>, 2> kept_;  // the last two slices of the file, with the lines and columns of this one
  int next_ = 0;                            // slice of the file
};

/// The number of voxels of an axis with another spacing. In double, since a header may say anything.
double resized(int from, double spacing, double wanted) {
  return wanted > 0 ? std::max(1.0, std::nearbyint(from * spacing / wanted)) : from;
}

std::string number_text(double number) { return std::to_string(static_cast<std::int64_t>(std::min(number, 1e15))); }

}  // namespace

std::shared_ptr<RegionSource> resampled_volume(std::shared_ptr<RegionSource> source,
                                               const std::array<double, 3>& spacing_mm, std::int64_t memory_bytes) {
  RegionInfo info = source->info();
  for (std::size_t axis = 0; axis < spacing_mm.size(); ++axis) {
    if (spacing_mm[axis] > 0 && !(info.spacing_mm[axis] > 0))
      throw PictureError(
          Reason::unsupported_format,
          "this volume has no spacing, but the model needs voxels of a certain size; correct its header");
  }
  const double columns = resized(info.size.columns, info.spacing_mm[0], spacing_mm[0]),
               lines = resized(info.size.lines, info.spacing_mm[1], spacing_mm[1]),
               rows = resized(info.size.rows, info.spacing_mm[2], spacing_mm[2]);
  constexpr double most = 32'767;  // along an axis, as in a NIfTI
  const double needed = static_cast<double>(source->memory_bytes()) +
                        static_cast<double>(sizeof(float)) * info.channels *
                            (static_cast<double>(info.size.row_values()) + 2 * lines * columns + info.size.columns);
  if (!(needed <= static_cast<double>(memory_bytes)) || !(std::max({columns, lines, rows}) <= most))
    throw PictureError(Reason::too_large, "resampling to the spacing of the model gives " + number_text(columns) +
                                              " x " + number_text(lines) + " x " + number_text(rows) +
                                              " voxels; raise gate.slab");
  info.file_size = info.size;
  info.size = {static_cast<int>(rows), static_cast<int>(lines), static_cast<int>(columns)};
  if (info.size == *info.file_size) return source;
  return std::make_shared<ResampledVolume>(std::move(source), info);
}

}  // namespace millrace
