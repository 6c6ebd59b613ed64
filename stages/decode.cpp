#include "stages/decode.hpp"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "gpu/nvjpeg.hpp"
#include "io/decode/plain_jpeg.hpp"
#include "io/input/scan.hpp"
#include "stages/pixel_cache.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {

namespace {

// Decoding goes by content, so a wrong extension does no harm. Users should still hear of it.
bool wrong_extension(const Frame& frame) {
  const std::string extension = extension_of(frame.item.path);
  // Other extensions promise no format.
  if (!is_picture_extension(extension)) return false;
  const auto is_one_of = [&](std::initializer_list<const char*> names) {
    return std::find(names.begin(), names.end(), extension) != names.end();
  };
  switch (frame.info.format) {
    case PictureFormat::jpeg:
      return !is_one_of({"jpg", "jpeg", "jpe", "jfif"});
    case PictureFormat::png:
      return !is_one_of({"png", "apng"});
    case PictureFormat::bmp:
      return !is_one_of({"bmp", "dib"});
    case PictureFormat::webp:
      return !is_one_of({"webp"});
    case PictureFormat::tiff:
      return !is_one_of({"tif", "tiff", "btf", "svs", "ndpi", "scn", "bif", "svslide"});
    case PictureFormat::pnm:
      return !is_one_of({"pbm", "pgm", "ppm", "pnm", "pam"});
    case PictureFormat::jpeg2000:
      return !is_one_of({"jp2", "j2k", "jpf", "jpx", "jpc", "j2c"});
    // The other formats are not decoded: probe() has failed their pictures already.
    default:
      return false;
  }
}

std::shared_ptr<void> raster_memory(const std::function<std::shared_ptr<void>(std::size_t)>& preferred,
                                    std::size_t bytes) {
  if (preferred) {
    try {
      return preferred(bytes);
    } catch (const std::bad_alloc&) {  // pinned memory runs out first
    }
  }
  return std::make_shared_for_overwrite<std::uint8_t[]>(bytes);
}

/// Whether `number` belongs to a share of all numbers from 0. Those that belong are spread evenly.
bool is_in_share(std::int64_t number, double share) {
  const auto before = static_cast<double>(number);
  return std::floor((before + 1) * share) > std::floor(before * share);
}

}  // namespace

void Decode::Options::visit(OptionVisitor& v) {
  v.option("max_megapixels", max_megapixels, "larger pictures fail as too_large", {1e-6, 1e6});
  v.option("max_scans", max_scans, "progressive JPEGs with more scans fail as too_large", {1, 1e6});
  v.bytes("max_memory", max_memory,
          "pictures that need more memory for decoding, in addition to their pixels, fail as too_large", {1, 4e12});
  v.option("level", level, "level of a slide's pyramid, from 0, the largest; -1: by the micrometres, else 0",
           {-1, 100});
  v.option("mpp", mpp, "micrometres a pixel to which slides are resampled; 0: those that the package asks for",
           {0, 1000});
  v.option("accept_truncated", accept_truncated,
           "minimum share of complete rows to accept a cut JPEG or PNG; 1: accept none", {0, 1});
  v.option("nvjpeg", nvjpeg, "share of the JPEGs that the JPEG engines of a GPU decode; 0: the CPU decodes all",
           {0, 1});
  v.option("volume", volume, "which volume of a NIfTI, or point in time of an OME-TIFF, from 0", {0, 1e6});
}

StageInfo Decode::info(const Options& options) {
  if (options.level >= 0 && options.mpp > 0)
    throw UsageError("decode.level and decode.mpp both choose the pixels of a slide; give one of them");
  return {name,
          Section::frame,
          "file bytes to RGB pixels in display orientation",
          {},
          {&pixels},
          {},
          {&decode_warnings, &wrong_extensions, &nvjpeg_decoded, &nvjpeg_refused, &nvjpeg_failed}};
}

DecodeLimits Decode::limits(const Options& options, std::int64_t slab_bytes) {
  DecodeLimits limits;
  limits.max_pixels = static_cast<std::int64_t>(options.max_megapixels * 1e6);
  limits.max_scans = options.max_scans;
  limits.working_bytes = options.max_memory;
  limits.accept_truncated = options.accept_truncated;
  limits.slab_bytes = slab_bytes;
  return limits;
}

Decode::Decode(const Options& options, const StageContext& context)
    : share_of_gpu_(options.nvjpeg), source_(context.source), counters_(context.counters) {}

/// Nothing if the CPU has to decode the picture.
std::optional<Decoded> Decode::decode_on_gpu(const Frame& frame, const PixelAllocator& allocate) const {
  const PictureInfo& info = frame.info;
  if (source_.nvjpeg == nullptr || info.format != PictureFormat::jpeg) return std::nullopt;
  // By the place in the plan, and not by which engine is free: the same plan gives the same bytes.
  if (!is_in_share(frame.item.id, share_of_gpu_)) return std::nullopt;
  const auto count = [&](const CounterInfo& counter) {
    if (!frame.retried) ++counters_[counter];
  };
  const bool as_in_file = info.orientation == 1 && info.reduction == 1;
  if (!as_in_file || !is_plain_jpeg(frame.file.span())) return count(nvjpeg_refused), std::nullopt;
  Decoded decoded{
      info, {info.pixel_width, info.pixel_height, allocate(static_cast<std::size_t>(info.pixel_bytes))}, {}};
  switch (source_.nvjpeg->decode(frame.file.span(), info.width, info.height, decoded.pixels.data.get())) {
    case Nvjpeg::Outcome::decoded:
      count(nvjpeg_decoded);
      return decoded;
    case Nvjpeg::Outcome::refused:
      count(nvjpeg_refused);
      break;
    case Nvjpeg::Outcome::failed:
      if (!frame.retried) counters_[nvjpeg_failed].add(frame.item.path);
      break;
  }
  return std::nullopt;
}

void Decode::run(Frame& frame) const {
  if (frame.region != nullptr) return;  // the stage that needs rows reads them
  if (source_.cache != nullptr) {
    if (const auto known = source_.cache->find(frame.item.path)) {
      frame.credit = {};  // pixels in the cache do not count against the gate's budget
      return frame.columns.set(pixels, known->pixels);
    }
  }
  // Any stage may be the last owner of the raster, so the deleter of the raster owns the credit.
  auto credit = std::make_shared<ByteCredit>(std::move(frame.credit));
  if (source_.cache != nullptr) *credit = {};  // the cache never frees the raster, which would keep the credit forever
  const PixelAllocator allocate = [&](std::size_t bytes) {
    std::shared_ptr<void> raster = raster_memory(source_.memory, bytes);
    auto* data = static_cast<std::uint8_t*>(raster.get());
    return std::shared_ptr<std::uint8_t>(data, [credit, raster = std::move(raster)](std::uint8_t*) {});
  };
  std::optional<Decoded> on_gpu = decode_on_gpu(frame, allocate);
  Decoded decoded = on_gpu ? std::move(*on_gpu)
                           : decode(frame.file.span(), frame.info,
                                    source_.limits.at(static_cast<std::size_t>(frame.item.view)), allocate);
  counters_.decoded_bytes += std::int64_t{3} * decoded.pixels.width * decoded.pixels.height;
  // The gate takes the bytes of the file back after the frame stages, so they must be free by then.
  frame.file = {};
  // A picture may be decoded again when a lane runs out of memory. It counts once.
  if (!decoded.warnings.empty() && !frame.retried) counters_[decode_warnings].add(frame.item.path);
  if (wrong_extension(frame) && !frame.retried) counters_[wrong_extensions].add(frame.item.path);
  if (source_.cache != nullptr) source_.cache->put(frame.item.path, {frame.info, decoded.pixels});
  frame.columns.set(pixels, std::move(decoded.pixels));
}

template StageEntry stage_entry<Decode>();

}  // namespace millrace
