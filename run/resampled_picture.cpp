#include "run/resampled_picture.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "gpu/resample.hpp"
#include "io/files/decode_error.hpp"

namespace millrace {
namespace {

int resized(int from, double from_mpp, double mpp) {
  return std::max(1, static_cast<int>(std::lround(from * from_mpp / mpp)));
}

class ResampledPicture final : public RegionSource {
 public:
  ResampledPicture(std::shared_ptr<RegionSource> source, const RegionInfo& info)
      : source_(std::move(source)), from_(source_->info().size), info_(info) {}

  const RegionInfo& info() const override { return info_; }

  std::int64_t memory_bytes() const override {
    return source_->memory_bytes() +
           RowResampler::bytes(from_.columns, from_.rows, info_.size.columns, info_.size.rows);
  }

  void read(int first, int count, void* to) override {
    // Not before: the gate grants these bytes after the file was opened.
    if (!resampler_) resampler_.emplace(from_.columns, from_.rows, info_.size.columns, info_.size.rows);
    auto* out = static_cast<std::uint8_t*>(to);
    for (int row = first; row < first + count; ++row, out += info_.row_bytes())
      resampler_->read(
          row, [&](int from, std::uint8_t* pixels) { source_->read(from, 1, pixels); }, out);
  }

 private:
  const std::shared_ptr<RegionSource> source_;
  const Extent from_;
  const RegionInfo info_;
  std::optional<RowResampler> resampler_;
};

}  // namespace

std::shared_ptr<RegionSource> resampled_picture(std::shared_ptr<RegionSource> source, double mpp, bool labels_back,
                                                std::int64_t memory_bytes) {
  RegionInfo info = source->info();
  // The spacing is that of labels, and these may have the pixels of a finer level.
  const Extent of_labels = info.file_size.value_or(info.size);
  const double x = 1000 * info.spacing_mm[0] * of_labels.columns / info.size.columns;
  const double y = 1000 * info.spacing_mm[1] * of_labels.rows / info.size.rows;
  const auto same = [&](double from) { return std::abs(from / mpp - 1) <= same_mpp; };
  if (same(x) && same(y)) return source;
  if (info.type != DType::u8 || info.channels != 3)
    throw PictureError(Reason::unsupported_format,
                       "decode.mpp resamples RGB of 8 bits, but the model takes the values of the file; leave it out");
  info.size.columns = resized(info.size.columns, x, mpp);
  info.size.rows = resized(info.size.rows, y, mpp);
  info.geo = {};
  if (labels_back) {
    info.file_size = of_labels;
  } else {
    info.spacing_mm = {mpp / 1000, mpp / 1000, 0};
  }
  auto resampled = std::make_shared<ResampledPicture>(std::move(source), info);
  if (resampled->memory_bytes() > memory_bytes)
    throw PictureError(Reason::too_large, "resampling needs " + std::to_string(resampled->memory_bytes()) +
                                              " bytes, more than gate.slab; raise gate.slab");
  return resampled;
}

}  // namespace millrace
