#include "stages/decode.hpp"

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <new>
#include <string>
#include <utility>

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
          {&decode_warnings, &wrong_extensions}};
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

Decode::Decode(const Options& /*options*/, const StageContext& context)
    : source_(context.source), counters_(context.counters) {}

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
  Decoded decoded =
      decode(frame.file.span(), frame.info, source_.limits.at(static_cast<std::size_t>(frame.item.view)), allocate);
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
