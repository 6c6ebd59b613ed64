// The code of libmillrace_tiff.so that writes label maps.
#include <fcntl.h>
#include <tiffio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/sinks/label_tiff.hpp"

namespace millrace {
namespace {

constexpr int tile = label_tile;
// A classic TIFF has at most 2^32 bytes. What is left is for directories, and for tiles that deflate makes larger.
constexpr std::int64_t most_classic_bytes = 4'000'000'000;

int shrunk(int side, int shrink) { return (side + shrink - 1) / shrink; }

/// The last page of a pyramid.
bool fits_tile(int width, int height, int shrink) { return shrunk(std::max(width, height), shrink) <= tile; }

/// Of the tiles of all pages before compression. Their padding counts: of narrow labels, it is most of it.
std::int64_t tile_bytes(int width, int height) {
  std::int64_t bytes = 0;
  for (int shrink = 1;; shrink *= 2) {
    bytes += std::int64_t{shrunk(shrunk(width, shrink), tile)} * shrunk(shrunk(height, shrink), tile) * tile * tile;
    if (fits_tile(width, height, shrink)) return bytes;
  }
}

struct Close {
  void operator()(TIFF* tiff) const { TIFFClose(tiff); }
};

int keep_message(TIFF* /*tiff*/, void* to, const char* /*module*/, const char* format, va_list words) {
  std::array<char, 300> text{};
  std::vsnprintf(text.data(), text.size(), format, words);
  *static_cast<std::string*>(to) = text.data();
  return 1;
}

/// libtiff does not know these tags itself.
constexpr TIFFFieldInfo geo_field(std::uint32_t number, TIFFDataType type, const char* name) {
  // libtiff never writes to the name.
  return {number, TIFF_VARIABLE2, TIFF_VARIABLE2, type, FIELD_CUSTOM, 1, 1, const_cast<char*>(name)};
}
constexpr std::array geo_fields{
    geo_field(geo_tag::pixel_scale, TIFF_DOUBLE, "ModelPixelScale"),
    geo_field(geo_tag::tie_points, TIFF_DOUBLE, "ModelTiepoint"),
    geo_field(geo_tag::transformation, TIFF_DOUBLE, "ModelTransformation"),
    geo_field(geo_tag::keys, TIFF_SHORT, "GeoKeyDirectory"),
    geo_field(geo_tag::parameters, TIFF_DOUBLE, "GeoDoubleParams"),
    TIFFFieldInfo{geo_tag::text, -1, -1, TIFF_ASCII, FIELD_CUSTOM, 1, 0, const_cast<char*>("GeoAsciiParams")}};

/// The pages of one file, largest first.
class Pyramid {
 public:
  Pyramid(int descriptor, int width, int height) : width_(width), height_(height) {
    const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(),
                                                                                   TIFFOpenOptionsFree);
    if (options == nullptr) throw std::bad_alloc();
    TIFFOpenOptionsSetErrorHandlerExtR(options.get(), keep_message, &message_);
    const bool large = tile_bytes(width, height) > most_classic_bytes;
    // TIFFClose closes its descriptor, and the caller keeps another one.
    const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0) throw std::runtime_error("the TIFF encoder got no descriptor");
    tiff_.reset(TIFFFdOpenExt(own, "labels", large ? "w8" : "w", options.get()));
    if (tiff_ == nullptr) {
      ::close(own);
      fail("begin");
    }
    check_set(TIFFMergeFieldInfo(tiff_.get(), geo_fields.data(), static_cast<std::uint32_t>(geo_fields.size())) == 0);
  }

  /// For the next page.
  void set(const GeoTags& geo) {
    set(geo_tag::pixel_scale, geo.pixel_scale);
    set(geo_tag::tie_points, geo.tie_points);
    set(geo_tag::transformation, geo.transformation);
    set(geo_tag::parameters, geo.parameters);
    set(geo_tag::keys, geo.keys);
    if (!geo.text.empty()) check_set(TIFFSetField(tiff_.get(), geo_tag::text, geo.text.c_str()));
  }

  void add_page(int shrink, const LabelRows& labels) {
    const int width = shrunk(width_, shrink), height = shrunk(height_, shrink);
    set(TIFFTAG_SUBFILETYPE, shrink > 1 ? FILETYPE_REDUCEDIMAGE : 0);
    set(TIFFTAG_IMAGEWIDTH, width);
    set(TIFFTAG_IMAGELENGTH, height);
    set(TIFFTAG_BITSPERSAMPLE, 8);
    set(TIFFTAG_SAMPLESPERPIXEL, 1);
    set(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
    set(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    set(TIFFTAG_COMPRESSION, COMPRESSION_ADOBE_DEFLATE);
    set(TIFFTAG_ZIPQUALITY, 1);
    set(TIFFTAG_TILEWIDTH, tile);
    set(TIFFTAG_TILELENGTH, tile);
    band_.assign(std::size_t{tile} * static_cast<std::size_t>(width), 0);
    int rows = 0;  // of this page
    labels.read([&](int first, std::span<const std::uint8_t> slab) {
      const int count = static_cast<int>(slab.size() / static_cast<std::size_t>(width_));
      for (int row = (shrink - first % shrink) % shrink; row < count; row += shrink) {
        const std::uint8_t* from = slab.data() + static_cast<std::ptrdiff_t>(row) * width_;
        std::uint8_t* const to = band_.data() + static_cast<std::ptrdiff_t>(rows % tile) * width;
        for (int x = 0; x < width; ++x, from += shrink) to[x] = *from;
        if (++rows % tile == 0) write_band(rows - tile, tile, width);
      }
    });
    if (rows % tile != 0) write_band(rows / tile * tile, rows % tile, width);
    if (rows != height) throw std::logic_error("labels that do not have the rows of their picture");
    if (TIFFWriteDirectory(tiff_.get()) != 1) fail("end a page");
  }

  void end() {
    if (TIFFFlush(tiff_.get()) != 1) fail("end the file");
    tiff_.reset();
    if (!message_.empty()) fail("end the file");
  }

 private:
  [[noreturn]] void fail(const char* what) {
    throw std::runtime_error(std::string("the TIFF encoder failed to ") + what + ": " +
                             (message_.empty() ? "no reason given" : message_));
  }

  void check_set(int result) {
    if (result != 1) fail("set a tag");
  }

  void set(std::uint32_t tag, int value) { check_set(TIFFSetField(tiff_.get(), tag, value)); }

  template <class T>
  void set(std::uint32_t tag, const std::vector<T>& values) {
    if (!values.empty())
      check_set(TIFFSetField(tiff_.get(), tag, static_cast<std::uint32_t>(values.size()), values.data()));
  }

  void write_band(int top, int rows, int width) {
    std::vector<std::uint8_t> pixels(std::size_t{tile} * tile);
    for (int left = 0; left < width; left += tile) {
      const int columns = std::min(tile, width - left);
      std::ranges::fill(pixels, std::uint8_t{0});
      for (int y = 0; y < rows; ++y)
        std::copy_n(band_.data() + static_cast<std::ptrdiff_t>(y) * width + left, columns,
                    pixels.data() + std::ptrdiff_t{y} * tile);
      const std::uint32_t number =
          TIFFComputeTile(tiff_.get(), static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(top), 0, 0);
      if (TIFFWriteEncodedTile(tiff_.get(), number, pixels.data(), static_cast<tmsize_t>(pixels.size())) < 0)
        fail("write a tile");
    }
  }

  const int width_, height_;
  std::string message_;
  std::unique_ptr<TIFF, Close> tiff_;
  std::vector<std::uint8_t> band_;
};

}  // namespace
}  // namespace millrace

extern "C" __attribute__((visibility("default"))) void millrace_write_label_tiff(int descriptor, int width, int height,
                                                                                 const millrace::GeoTags& geo,
                                                                                 const millrace::LabelRows& labels) {
  millrace::Pyramid pyramid(descriptor, width, height);
  pyramid.set(geo);
  for (int shrink = 1;; shrink *= 2) {
    pyramid.add_page(shrink, labels);
    if (millrace::fits_tile(width, height, shrink)) break;
  }
  pyramid.end();
}
