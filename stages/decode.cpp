#include "stages/decode.hpp"

#include <memory>
#include <utility>

#include "stages/stage_entry.hpp"

namespace millrace {

void Decode::Options::visit(OptionVisitor& v) {
  v.option("max_megapixels", max_megapixels, "larger pictures fail as too_large", {1e-6, 1e6});
  v.option("max_scans", max_scans, "progressive JPEGs with more scans fail as too_large", {1, 1e6});
  v.option("accept_truncated", accept_truncated, "share of rows from which a cut JPEG is taken; 1: never", {0, 1});
}

StageInfo Decode::info(const Options& /*options*/) {
  return {name, Section::frame, "file bytes to RGB pixels in display orientation", {}, {&pixels}, {}};
}

DecodeLimits Decode::limits(const Options& options, std::int64_t slab_bytes) {
  DecodeLimits limits;
  limits.max_pixels = static_cast<std::int64_t>(options.max_megapixels * 1e6);
  limits.max_scans = options.max_scans;
  limits.accept_truncated = options.accept_truncated;
  limits.slab_bytes = slab_bytes;
  return limits;
}

Decode::Decode(const Options& /*options*/, const StageContext& context)
    : limits_(context.decode_limits), warnings_(context.counters.decode_warnings) {}

void Decode::run(Frame& frame) const {
  // The credit must outlive the raster, whoever holds it last: it rides in the deleter.
  auto credit = std::make_shared<ByteCredit>(std::move(frame.credit));
  const PixelAllocator allocate = [&credit](std::size_t bytes) {
    auto* raster = new std::uint8_t[bytes];
    return std::shared_ptr<std::uint8_t>(raster, [credit](std::uint8_t* data) { delete[] data; });
  };
  Decoded decoded = decode(frame.file.span(), frame.info, limits_, allocate);
  frame.file = {};
  if (!decoded.warnings.empty()) ++warnings_;
  frame.columns.set(pixels, std::move(decoded.pixels));
}

template StageEntry stage_entry<Decode>();

}  // namespace millrace
