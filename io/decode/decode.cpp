#include "io/decode/decode.hpp"

#include <new>

#include "io/decode/decode_headers.hpp"
#include "io/decode/imgcodecs.hpp"
#include "io/decode/jpeg.hpp"
#include "io/decode/png.hpp"

namespace millrace {
namespace {

/// Runs `body`. Every exception leaves as a PictureError, the only one that probe() and decode() throw.
template <class Body>
auto as_picture_error(const Body& body) {
  try {
    return body();
  } catch (const PictureError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw PictureError(Reason::oom_host, "no host memory for this picture");
  } catch (const std::exception& error) {
    throw PictureError(Reason::internal, error.what());
  }
}

}  // namespace

std::string_view to_string(PictureFormat format) {
  switch (format) {
    case PictureFormat::jpeg:
      return "JPEG";
    case PictureFormat::png:
      return "PNG";
    case PictureFormat::bmp:
      return "BMP";
    case PictureFormat::webp:
      return "WebP";
    case PictureFormat::tiff:
      return "TIFF";
    case PictureFormat::pnm:
      return "PNM";
    case PictureFormat::jpeg2000:
      return "JPEG 2000";
    case PictureFormat::gif:
      return "GIF";
    case PictureFormat::avif:
      return "AVIF";
    case PictureFormat::heic:
      return "HEIC";
    case PictureFormat::jpeg_xl:
      return "JPEG XL";
    case PictureFormat::psd:
      return "Photoshop PSD";
    case PictureFormat::exr:
      return "OpenEXR";
    case PictureFormat::hdr:
      return "Radiance HDR";
    case PictureFormat::ico:
      return "ICO";
    case PictureFormat::svg:
      return "SVG";
  }
  return "unknown";
}

PictureInfo probe(std::span<const std::uint8_t> bytes, const DecodeLimits& limits) {
  return as_picture_error([&] {
    if (bytes.empty()) throw PictureError(Reason::empty, "the file has no bytes");
    const auto format = sniff(bytes);
    if (!format) throw PictureError(Reason::not_an_image, "no picture: it looks like " + describe_content(bytes));
    switch (*format) {
      case PictureFormat::jpeg:
        return probe_jpeg(bytes, limits);
      case PictureFormat::png:
        return probe_png(bytes, limits);
      default:
        return probe_imgcodecs(bytes, *format, limits);
    }
  });
}

std::shared_ptr<std::uint8_t> pixels_on_heap(std::size_t bytes) {
  return {new std::uint8_t[bytes], [](const std::uint8_t* data) { delete[] data; }};
}

Decoded decode(std::span<const std::uint8_t> bytes, const PictureInfo& info, const DecodeLimits& limits,
               const PixelAllocator& allocate) {
  return as_picture_error([&] {
    Decoded result{
        .info = info,
        .pixels = {info.pixel_width, info.pixel_height, allocate(static_cast<std::size_t>(info.pixel_bytes))},
        .warnings = {}};
    std::uint8_t* const pixels = result.pixels.data.get();
    // Becomes oom_host, as every std::bad_alloc of a decoder does.
    if (pixels == nullptr) throw std::bad_alloc();
    switch (info.format) {
      case PictureFormat::jpeg:
        decode_jpeg(bytes, info, limits, pixels, result.warnings);
        break;
      case PictureFormat::png:
        decode_png(bytes, info, limits, pixels, result.warnings);
        break;
      default:
        decode_imgcodecs(bytes, info, pixels, result.warnings);
        break;
    }
    return result;
  });
}

}  // namespace millrace
