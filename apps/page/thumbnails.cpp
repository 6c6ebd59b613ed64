#include "apps/page/thumbnails.hpp"

#include <exception>
#include <memory>
#include <stdexcept>
#include <string_view>

#include "base/json.hpp"
#include "io/decode/decode.hpp"
#include "io/files/base64.hpp"
#include "io/files/decode_error.hpp"
#include "io/files/read_file.hpp"
#include "io/sinks/image_write.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr int most = 24;  // thumbnails of a page
constexpr int quality = 75;
constexpr std::size_t largest_jpeg = 16 << 10;
// Of all files together.
constexpr std::int64_t most_file_bytes = 256 << 20;
constexpr std::int64_t most_pixels = 100'000'000;  // decoding takes about a second

/// The decoder reduces each picture to the size of a thumbnail.
DecodeLimits limits() {
  DecodeLimits limits;
  limits.max_pixels = 40'000'000;
  limits.max_scans = 64;
  limits.slab_bytes = 3 * 160 * 120;
  limits.working_bytes = 128 << 20;
  limits.accept_truncated = 0.01;
  return limits;
}

}  // namespace

Json Thumbnails::make(const std::string& path) {
  if (tried_ == most || file_bytes_ >= most_file_bytes || pixels_ >= most_pixels) return nullptr;
  ++tried_;
  try {
    FileExpectations expected;
    expected.max_bytes = most_file_bytes / 4;
    const FileBytes file = read_file(path.starts_with('/') ? path : root_ + "/" + path, expected);
    file_bytes_ += static_cast<std::int64_t>(file.size);
    const PictureInfo info = probe(file.span(), limits());
    pixels_ += static_cast<std::int64_t>(info.width) * info.height;
    const Decoded decoded = decode(file.span(), info, limits(), pixels_on_heap);
    const auto jpeg = encode_jpeg(decoded.pixels.data.get(), decoded.pixels.width, decoded.pixels.height, quality);
    if (jpeg.size() > largest_jpeg) throw std::runtime_error("its thumbnail has too many details");
    return {{"jpeg", to_base64({reinterpret_cast<const char*>(jpeg.data()), jpeg.size()})},
            {"width", decoded.pixels.width},
            {"height", decoded.pixels.height}};
  } catch (const PictureError& error) {
    // Its sentence would advise to raise limits of the run, but these are the limits of thumbnails.
    if (error.reason() == Reason::too_large) return {{"why", "too large for a thumbnail"}};
    return {{"why", error.what()}};
  } catch (const std::exception& error) {
    return {{"why", error.what()}};
  }
}

}  // namespace millrace
