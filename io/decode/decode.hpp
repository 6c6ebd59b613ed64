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

/// Limits for one picture.
/// Sizes and memory are checked against the header, before memory is taken. Scans are counted while decoding.
struct DecodeLimits {
  std::int64_t max_pixels = 300'000'000;  ///< width x height
  int max_side = 100'000;                 ///< width or height: limits the cost of one row
  /// Scans of a JPEG. In addition, scans x width x height may be at most 16 x max_pixels.
  int max_scans = 500;
  std::int64_t slab_bytes = 64LL << 20;  ///< a larger RGB8 raster is reduced while decoding
  /// Memory in addition to raster and file. Three kinds of pictures need it:
  /// - a progressive JPEG, for its coefficients
  /// - an interlaced PNG that is reduced or turned
  /// - a picture of another codec, for that codec's raster
  std::int64_t working_bytes = 512LL << 20;
  /// For JPEG and PNG. Below 1, a picture whose data end early passes with a warning
  /// if at least this share of its rows is complete. The other rows are filler.
  double accept_truncated = 1.0;
};

/// The formats that are recognised by content.
/// Those after `jpeg2000` are not decoded; they are recognised so that a message can name them.
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

/// The name for people, e.g. "JPEG 2000".
std::string_view to_string(PictureFormat format);

/// The facts of the header, and the raster that `decode` makes.
struct PictureInfo {
  PictureFormat format = PictureFormat::jpeg;
  int width = 0, height = 0;  ///< full size as displayed, after orientation
  int orientation = 1;        ///< EXIF value of the file, 1..8; `decode` applies it
  int reduction = 1;          ///< r: raster pixel (x, y) is the mean of display pixels [x r, x r + r) x [y r, y r + r)
  int pixel_width = 0, pixel_height = 0;  ///< of the raster: ceil(width / reduction), ceil(height / reduction)
  std::int64_t pixel_bytes = 0;           ///< of the raster: 3 x pixel_width x pixel_height, at most slab_bytes
  std::int64_t working_bytes = 0;         ///< for decoding, in addition to raster, file and some rows
};

/// Returns `bytes` of uninitialised memory. Null or std::bad_alloc means that no memory is left.
using PixelAllocator = std::function<std::shared_ptr<std::uint8_t>(std::size_t bytes)>;
/// A PixelAllocator for pictures outside of the pipeline.
std::shared_ptr<std::uint8_t> pixels_on_heap(std::size_t bytes);

/// A decoded picture in display orientation. `warnings` has sentences about oddities of its file.
/// Rules for the pixels:
/// - Grey is repeated in all channels. Palettes are looked up.
/// - 16 bits become 8 by rounding v / 257.
/// - Transparency is blended over white. The alpha of BMP is ignored, as viewers do.
/// - CMYK and YCCK become R = C K / 255, where C and K are the inverted values that Adobe stores.
/// - Gamma and colour profiles are not applied.
/// - An animated PNG gives its still picture, with a warning.
/// - An animated WebP and a TIFF with several pages give their first picture, with a warning.
struct Decoded {
  PictureInfo info;
  PixelBuffer pixels;
  std::vector<std::string> warnings;
};

/// Reads only the header: the format (by content, never by name), size, orientation, and the raster to come.
/// Takes no memory that depends on the claims of the header.
/// Throws only PictureError. May be called from any thread.
PictureInfo probe(std::span<const std::uint8_t> bytes, const DecodeLimits& limits);

/// Decodes into memory of `allocate`, which it calls once, for info.pixel_bytes.
/// `info` is the result of `probe` for the same bytes under the same limits.
/// With orientation 1 and reduction 1, it decodes straight into that memory.
/// Throws only PictureError. May be called from any thread.
Decoded decode(std::span<const std::uint8_t> bytes, const PictureInfo& info, const DecodeLimits& limits,
               const PixelAllocator& allocate);

}  // namespace millrace
