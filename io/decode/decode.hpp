#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/image.hpp"
#include "io/files/decode_error.hpp"

namespace millrace {

/// What a picture may cost. Everything is checked against the header before memory is taken.
struct DecodeLimits {
  std::int64_t max_pixels = 300'000'000;  ///< width x height
  int max_side = 100'000;                 ///< width or height: bounds what one row may cost
  int max_scans = 500;                    ///< of a JPEG; and in sum over the scans at most 16 x max_pixels are visited
  std::int64_t slab_bytes = 64LL << 20;   ///< a larger RGB8 raster is reduced while decoding
  std::int64_t working_bytes = 512LL << 20;  ///< memory beside raster and file: coefficients of a progressive JPEG, an
                                             ///< interlaced PNG to be reduced or turned, the raster of another codec
  double accept_truncated = 1.0;             ///< below 1, a picture whose data end early passes with a warning when at
                                             ///< least this share of its rows is complete; the other rows are filler
};

/// The formats recognised by content. Those after `jpeg2000` are recognised to be named, but not decoded.
enum class PictureFormat {
  jpeg,
  png,
  bmp,
  webp,
  tiff,
  pnm,
  jpeg2000,
  gif,
  avif,
  heic,
  jpeg_xl,
  psd,
  exr,
  hdr,
  ico,
  svg
};

/// The name people know, e.g. "JPEG 2000".
std::string_view to_string(PictureFormat format);

/// What the header says, and the raster `decode` will make of it.
struct PictureInfo {
  PictureFormat format = PictureFormat::jpeg;
  int width = 0, height = 0;  ///< display size: full, after orientation
  int orientation = 1;        ///< EXIF, 1..8, as it stands in the file; `decode` has applied it
  int reduction = 1;          ///< raster pixel (x, y) is the mean of the display pixels [x r, x r + r) x [y r, y r + r)
  int pixel_width = 0, pixel_height = 0;  ///< of the raster: ceil(width / reduction), ceil(height / reduction)
  std::int64_t pixel_bytes = 0;           ///< of the raster: 3 x pixel_width x pixel_height, at most slab_bytes
  std::int64_t working_bytes = 0;         ///< what decoding takes beside raster and file, except for some rows
};

/// Gives `bytes` of memory, uninitialised; null or std::bad_alloc for "none left".
using PixelAllocator = std::function<std::shared_ptr<std::uint8_t>(std::size_t bytes)>;

/// A decoded picture, and what was odd about its file without making it useless. The pixels are in display orientation.
/// Rules: grey is repeated; palettes are looked up; 16 bits become 8 by rounding v / 257; transparency is composited
/// over white (alpha of BMP is ignored, as viewers do); CMYK and YCCK become R = C K / 255 of Adobe's inverted values;
/// gamma and colour profiles are not applied; of animations and multi-page files the first picture counts, with a
/// warning.
struct Decoded {
  PictureInfo info;
  PixelBuffer pixels;
  std::vector<std::string> warnings;
};

/// Reads the header alone: format by content (never by name), size, orientation, the raster to come. Takes no memory
/// that depends on what the header claims. Throws PictureError, nothing else.
PictureInfo probe(std::span<const std::uint8_t> bytes, const DecodeLimits& limits);

/// Decodes into memory of `allocate`, asked once for info.pixel_bytes; `info` is what `probe` said of the same bytes
/// under the same limits. A picture without orientation and reduction is decoded straight into that memory. Throws
/// PictureError, nothing else.
Decoded decode(std::span<const std::uint8_t> bytes, const PictureInfo& info, const DecodeLimits& limits,
               const PixelAllocator& allocate);

}  // namespace millrace
