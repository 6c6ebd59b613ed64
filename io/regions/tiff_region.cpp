#include "io/regions/tiff_region.hpp"

#include <tiffio.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {
namespace {

constexpr int rgb_channels = 3;  // grey is repeated, as for other pictures

/// Millimetres between pixels of a slide of Aperio: "Aperio Image Library ...|MPP = 0.4990|...". 0: unknown.
/// Not the resolution of other TIFFs, since most programs write 72 or 96 dots per inch into all files.
std::array<double, 3> aperio_spacing(const TiffFile& file) {
  const std::string_view words = file.description(), key("|MPP = ");
  const std::size_t at = words.find(key);
  if (!words.starts_with("Aperio") || at == std::string_view::npos) return {};
  double micrometres = 0;
  std::from_chars(words.data() + at + key.size(), words.data() + words.size(), micrometres);
  if (!std::isfinite(micrometres) || micrometres <= 0) return {};
  return {micrometres / 1000, micrometres / 1000, 0};
}

/// The values of a tag that libtiff does not know; none if they have another type, or are absurdly many.
template <class T>
std::vector<T> values_of(TIFF* tiff, std::uint32_t number, TIFFDataType type) {
  constexpr std::uint32_t most_values = 100'000;
  const TIFFField* const field = TIFFFindField(tiff, number, TIFF_ANY);
  std::uint32_t count = 0;
  const T* values = nullptr;
  if (field == nullptr || TIFFFieldDataType(field) != type || TIFFFieldPassCount(field) == 0 ||
      TIFFFieldReadCount(field) != TIFF_VARIABLE2 || TIFFGetField(tiff, number, &count, &values) != 1 ||
      values == nullptr || count > most_values)
    return {};
  return {values, values + count};
}

GeoTags geo_tags(TIFF* tiff) {
  GeoTags tags;
  tags.pixel_scale = values_of<double>(tiff, geo_tag::pixel_scale, TIFF_DOUBLE);
  tags.tie_points = values_of<double>(tiff, geo_tag::tie_points, TIFF_DOUBLE);
  tags.transformation = values_of<double>(tiff, geo_tag::transformation, TIFF_DOUBLE);
  tags.parameters = values_of<double>(tiff, geo_tag::parameters, TIFF_DOUBLE);
  tags.keys = values_of<std::uint16_t>(tiff, geo_tag::keys, TIFF_SHORT);
  const std::vector<char> text = values_of<char>(tiff, geo_tag::text, TIFF_ASCII);
  tags.text.assign(text.begin(), std::ranges::find(text, '\0'));
  return tags;
}

/// The layout of a picture.
struct Layout {
  std::uint32_t width = 0, height = 0;
  std::uint32_t part_width = 0, part_height = 0;  ///< of a tile or strip
  int samples = 1, bits = 8;
  bool tiled = false, planes = false, white_is_zero = false;
  bool jpeg_colours = false;                 ///< libtiff makes RGB of them, if it is asked
  std::uint16_t format = SAMPLEFORMAT_UINT;  ///< of a sample
  enum class Alpha { none, plain, premultiplied } alpha = Alpha::none;
  bool grey() const { return samples - (alpha == Alpha::none ? 0 : 1) == 1; }
};

constexpr const char* rule_of_rgb =
    "in parts, unsigned whole numbers of 8 or 16 bits in one to four channels are read as RGB";
constexpr const char* rule_of_channels = "whole numbers of 8 or 16 bits and floating-point numbers of 32 bits are read";

[[noreturn]] void unsupported(const std::string& what, const char* rule = rule_of_rgb) {
  throw PictureError(Reason::unsupported_format, "a TIFF with " + what + "; " + rule);
}

[[noreturn]] void unsupported_samples(const Layout& layout, const char* rule) {
  const char* const of = layout.format == SAMPLEFORMAT_UINT     ? "unsigned whole numbers"
                         : layout.format == SAMPLEFORMAT_INT    ? "signed whole numbers"
                         : layout.format == SAMPLEFORMAT_IEEEFP ? "floating-point numbers"
                                                                : "values of another kind";
  unsupported(std::string(of) + " of " + std::to_string(layout.bits) + " bits", rule);
}

/// For values that are kept as they are.
void check_samples(const Layout& layout, int channels) {
  const bool whole = layout.format == SAMPLEFORMAT_UINT || layout.format == SAMPLEFORMAT_INT;
  if (!(whole && (layout.bits == 8 || layout.bits == 16)) &&
      !(layout.format == SAMPLEFORMAT_IEEEFP && layout.bits == 32))
    unsupported_samples(layout, rule_of_channels);
  if (layout.samples != channels)
    throw PictureError(Reason::unsupported_format, "a TIFF with " + std::to_string(layout.samples) +
                                                       (layout.samples == 1 ? " channel" : " channels") +
                                                       ", but the model takes " + std::to_string(channels));
}

/// The kind of a picture that is only read whole; null: it is read in parts.
const char* only_whole(const TiffFile& file, const Layout& layout) {
  const auto compression = file.tag<std::uint16_t>(TIFFTAG_COMPRESSION, COMPRESSION_NONE);
  const auto photometric = file.tag<std::uint16_t>(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
  if (file.tag<std::uint16_t>(TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT) != ORIENTATION_TOPLEFT)
    return "another orientation";
  if (compression == COMPRESSION_OJPEG) return "old JPEG";
  if (photometric == PHOTOMETRIC_PALETTE) return "a palette";
  // If colours are reduced, samples do not lie side by side. Of JPEG, libtiff makes RGB.
  if (photometric == PHOTOMETRIC_YCBCR && compression != COMPRESSION_JPEG) return "colours as brightness and chroma";
  return layout.bits < 8 ? "less than 8 bits" : nullptr;
}

/// Once each time that the directory becomes the current one.
void ask_for_colours(const TiffFile& file, const Layout& layout) {
  if (layout.jpeg_colours) TIFFSetField(file.tiff(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
}

/// False if the picture is only read whole.
bool read_layout(const TiffFile& file, int channels, Layout& layout) {
  layout.width = file.tag<std::uint32_t>(TIFFTAG_IMAGEWIDTH, 0);
  layout.height = file.tag<std::uint32_t>(TIFFTAG_IMAGELENGTH, 0);
  if (layout.width == 0 || layout.height == 0)
    throw PictureError(Reason::corrupt_data, "a TIFF without a width or a height");
  // Columns and rows are int, and a row of RGB must have a size that fits.
  if (layout.width > 100'000'000 || layout.height > std::uint32_t{std::numeric_limits<int>::max()} / 2)
    throw PictureError(Reason::too_large,
                       "a TIFF of " + std::to_string(layout.width) + "x" + std::to_string(layout.height) + " pixels");
  layout.samples = file.tag<std::uint16_t>(TIFFTAG_SAMPLESPERPIXEL, 1);
  layout.bits = file.tag<std::uint16_t>(TIFFTAG_BITSPERSAMPLE, 1);
  layout.tiled = TIFFIsTiled(file.tiff()) != 0;
  layout.planes = file.tag<std::uint16_t>(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG) == PLANARCONFIG_SEPARATE;
  const auto compression = file.tag<std::uint16_t>(TIFFTAG_COMPRESSION, COMPRESSION_NONE);
  const auto photometric = file.tag<std::uint16_t>(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
  layout.format = file.tag<std::uint16_t>(TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT);
  layout.jpeg_colours = photometric == PHOTOMETRIC_YCBCR && compression == COMPRESSION_JPEG;
  if (const char* const kind = only_whole(file, layout)) {
    // Read whole, it would be RGB.
    if (channels > 0) unsupported(kind, rule_of_channels);
    return false;
  }
  if (!TIFFIsCODECConfigured(compression)) unsupported("compression " + std::to_string(compression));
  if (channels > 0) {
    check_samples(layout, channels);
  } else if (layout.format != SAMPLEFORMAT_UINT || (layout.bits != 8 && layout.bits != 16)) {
    unsupported_samples(layout, rule_of_rgb);
  }
  layout.white_is_zero = photometric == PHOTOMETRIC_MINISWHITE;
  ask_for_colours(file, layout);
  const bool grey = photometric == PHOTOMETRIC_MINISBLACK || layout.white_is_zero;
  if (channels == 0 && !grey && photometric != PHOTOMETRIC_RGB && !layout.jpeg_colours) return false;
  std::uint16_t extras = 0;
  std::uint16_t* kinds = nullptr;
  if (TIFFGetFieldDefaulted(file.tiff(), TIFFTAG_EXTRASAMPLES, &extras, &kinds) == 1 && extras > 0 &&
      kinds != nullptr) {
    if (kinds[0] == EXTRASAMPLE_UNASSALPHA) layout.alpha = Layout::Alpha::plain;
    if (kinds[0] == EXTRASAMPLE_ASSOCALPHA) layout.alpha = Layout::Alpha::premultiplied;
  }
  const int colours = grey ? 1 : 3;
  if (channels == 0 && layout.samples != colours + (layout.alpha == Layout::Alpha::none ? 0 : 1))
    unsupported(std::to_string(layout.samples) + " channels");
  if (layout.tiled) {
    layout.part_width = file.tag<std::uint32_t>(TIFFTAG_TILEWIDTH, 0);
    layout.part_height = file.tag<std::uint32_t>(TIFFTAG_TILELENGTH, 0);
  } else {
    layout.part_width = layout.width;
    layout.part_height = std::min(file.tag<std::uint32_t>(TIFFTAG_ROWSPERSTRIP, layout.height), layout.height);
  }
  if (layout.part_width == 0 || layout.part_height == 0)
    throw PictureError(Reason::corrupt_data, "a TIFF with tiles or strips without a side");
  return true;
}

/// Of the values that read() gives.
int channels_of(const Layout& layout, bool as_rgb) { return as_rgb ? rgb_channels : layout.samples; }
DType type_of(const Layout& layout, bool as_rgb) {
  return as_rgb || (layout.bits == 8 && layout.format == SAMPLEFORMAT_UINT) ? DType::u8 : DType::f32;
}

class TiffRegion final : public RegionSource {
 public:
  /// Reads the current directory of the file.
  TiffRegion(std::shared_ptr<TiffFile> file, const Layout& layout, std::int64_t part_bytes,
             const std::array<double, 3>& spacing_mm, const std::optional<Extent>& file_size, bool as_rgb)
      : as_rgb_(as_rgb), file_(std::move(file)), place_(TIFFCurrentDirOffset(file_->tiff())), layout_(layout) {
    info_.size = {static_cast<int>(layout.height), 1, static_cast<int>(layout.width)};
    info_.channels = channels_of(layout, as_rgb);
    info_.type = type_of(layout, as_rgb);
    info_.spacing_mm = spacing_mm;
    info_.file_size = file_size;
    if (!file_size) info_.geo = geo_tags(file_->tiff());  // the tags are of this level, and labels are not
    part_bytes_ = static_cast<std::size_t>(part_bytes) * (layout.planes ? static_cast<std::size_t>(layout.samples) : 1);
    band_bytes_ = static_cast<std::size_t>(info_.row_bytes()) * layout.part_height;
  }

  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override { return static_cast<std::int64_t>(part_bytes_ + band_bytes_); }

  void read(int first, int count, void* to) override { read_rows(first, count, to, nullptr); }

  void read_with_holes(int first, int count, void* to, std::vector<Hole>& holes) override {
    read_rows(first, count, to, &holes);
  }

 private:
  void read_rows(int first, int count, void* to, std::vector<Hole>* holes) {
    // Not before: the gate grants these bytes after the file was opened.
    part_.resize(part_bytes_);
    band_.resize(band_bytes_);
    const auto row_bytes = static_cast<std::size_t>(info_.row_bytes());
    auto* out = static_cast<std::uint8_t*>(to);
    for (int row = first; row < first + count;) {
      const int band = row / static_cast<int>(layout_.part_height);
      if (band != loaded_band_) load_band(band, holes != nullptr);
      const int in_band = row % static_cast<int>(layout_.part_height);
      const int rows = std::min(first + count - row, static_cast<int>(layout_.part_height) - in_band);
      std::memcpy(out, band_.data() + static_cast<std::size_t>(in_band) * row_bytes,
                  static_cast<std::size_t>(rows) * row_bytes);
      for (const Hole& hole : band_holes_) holes->push_back({row, row + rows, hole.first_column, hole.end_column});
      out += static_cast<std::size_t>(rows) * row_bytes;
      row += rows;
    }
  }

  void load_band(int band, bool with_holes) {
    loaded_band_ = -1;
    band_holes_.clear();
    if (file_->go_to(place_)) ask_for_colours(*file_, layout_);
    const auto top = static_cast<std::uint32_t>(band) * layout_.part_height;
    const std::uint32_t rows = std::min(layout_.part_height, layout_.height - top);
    const std::size_t pixel_bytes = static_cast<std::size_t>(info_.row_bytes()) / layout_.width;
    for (std::uint32_t left = 0; left < layout_.width; left += layout_.part_width) {
      const std::uint32_t columns = std::min(layout_.part_width, layout_.width - left);
      const auto row_at = [&](std::uint32_t y) {
        return band_.data() + pixel_bytes * (std::size_t{y} * layout_.width + left);
      };
      try {
        load_part(left, top);
        for (std::uint32_t y = 0; y < rows; ++y)
          as_rgb_ ? convert_row(y, columns, row_at(y)) : copy_row(y, columns, row_at(y));
      } catch (const PictureError& error) {
        if (!with_holes || error.reason() != Reason::corrupt_data) throw;
        for (std::uint32_t y = 0; y < rows; ++y) std::fill_n(row_at(y), pixel_bytes * columns, std::uint8_t{0});
        add_hole(static_cast<int>(left), static_cast<int>(left + columns));
      }
    }
    loaded_band_ = band;
  }

  // Neighbours become one, so that a row of broken tiles is one hole.
  void add_hole(int left, int end) {
    if (!band_holes_.empty() && band_holes_.back().end_column == left) {
      band_holes_.back().end_column = end;
    } else {
      band_holes_.push_back({.first_column = left, .end_column = end});
    }
  }

  void load_part(std::uint32_t left, std::uint32_t top) {
    const int planes = layout_.planes ? layout_.samples : 1;
    const std::size_t bytes = part_.size() / static_cast<std::size_t>(planes);
    // An empty tile of a sparse file has no data and is black.
    std::ranges::fill(part_, std::uint8_t{0});
    for (int plane = 0; plane < planes; ++plane) {
      const auto sample = static_cast<std::uint16_t>(plane);
      const std::uint32_t number = layout_.tiled ? TIFFComputeTile(file_->tiff(), left, top, 0, sample)
                                                 : TIFFComputeStrip(file_->tiff(), top, sample);
      int failed = 0;
      const auto stored = TIFFGetStrileByteCountWithErr(file_->tiff(), number, &failed);
      if (failed == 0 && stored == 0) continue;
      std::uint8_t* const to = part_.data() + static_cast<std::size_t>(plane) * bytes;
      if (decode_part(number, to, bytes)) continue;
      const std::string part = std::string(layout_.tiled ? "tile " : "strip ") + std::to_string(number) +
                               " at column " + std::to_string(left) + ", row " + std::to_string(top) +
                               " cannot be read: ";
      check_device(number, std::min<std::uint64_t>(stored, 2 * bytes), part);
      // If the device failed only once, the second try succeeds.
      if (!decode_part(number, to, bytes))
        throw PictureError(Reason::corrupt_data,
                           part + (file_->message().empty() ? "no reason given" : file_->message()));
    }
  }

  bool decode_part(std::uint32_t number, std::uint8_t* to, std::size_t bytes) {
    file_->clear_message();
    const auto size = static_cast<tmsize_t>(bytes);
    return (layout_.tiled ? TIFFReadEncodedTile(file_->tiff(), number, to, size)
                          : TIFFReadEncodedStrip(file_->tiff(), number, to, size)) >= 0;
  }

  // libtiff does not say whether the data are broken, or the disk or network failed.
  void check_device(std::uint32_t number, std::uint64_t stored, const std::string& part) const {
    int failed = 0;
    const std::uint64_t begin = TIFFGetStrileOffsetWithErr(file_->tiff(), number, &failed);
    // An offset that no file can have is a fault of the data.
    if (failed != 0 || begin > std::uint64_t{std::numeric_limits<std::int64_t>::max()} - stored) return;
    std::vector<std::uint8_t> raw(std::min<std::uint64_t>(stored, std::uint64_t{1} << 20));
    try {
      for (std::uint64_t done = 0; done < stored; done += raw.size())
        read_bytes_at(TIFFFileno(file_->tiff()), static_cast<std::int64_t>(begin + done),
                      std::min<std::uint64_t>(raw.size(), stored - done), raw.data());
    } catch (const PictureError& error) {
      if (error.reason() == Reason::io_error) throw PictureError(Reason::io_error, part + error.what());
    }
  }

  /// One sample of the loaded part.
  template <class T>
  T sample_as(std::uint32_t x, std::uint32_t y, int s) const {
    const std::size_t place = std::size_t{y} * layout_.part_width + x;
    const std::size_t at =
        layout_.planes
            ? part_.size() / static_cast<std::size_t>(layout_.samples) * static_cast<std::size_t>(s) + place * sizeof(T)
            : (place * static_cast<std::size_t>(layout_.samples) + static_cast<std::size_t>(s)) * sizeof(T);
    T value{};
    std::memcpy(&value, part_.data() + at, sizeof(value));
    return value;
  }

  /// One unsigned sample as a number of its own depth.
  std::uint32_t sample(std::uint32_t x, std::uint32_t y, int s) const {
    return layout_.bits == 8 ? sample_as<std::uint8_t>(x, y, s) : sample_as<std::uint16_t>(x, y, s);
  }

  template <class From, class To>
  void copy_as(std::uint32_t y, std::uint32_t columns, std::uint8_t* to) const {
    for (std::uint32_t x = 0; x < columns; ++x) {
      for (int s = 0; s < layout_.samples; ++s, to += sizeof(To)) {
        const auto value = static_cast<To>(sample_as<From>(x, y, s));
        std::memcpy(to, &value, sizeof(value));
      }
    }
  }

  // The values of the file. Those of 16 bits are exact in float32.
  void copy_row(std::uint32_t y, std::uint32_t columns, std::uint8_t* to) const {
    if (layout_.format == SAMPLEFORMAT_IEEEFP) return copy_as<float, float>(y, columns, to);
    const bool is_signed = layout_.format == SAMPLEFORMAT_INT;
    if (layout_.bits == 16)
      return is_signed ? copy_as<std::int16_t, float>(y, columns, to) : copy_as<std::uint16_t, float>(y, columns, to);
    is_signed ? copy_as<std::int8_t, float>(y, columns, to) : copy_as<std::uint8_t, std::uint8_t>(y, columns, to);
  }

  // The rules of Decoded, for pictures that are decoded whole. Alpha is blended over white in the depth of the file.
  void convert_row(std::uint32_t y, std::uint32_t columns, std::uint8_t* to) const {
    if (layout_.bits == 8 && layout_.samples == 3 && !layout_.planes) {
      std::memcpy(to, part_.data() + std::size_t{3} * y * layout_.part_width, std::size_t{3} * columns);
      return;
    }
    const std::uint64_t top = layout_.bits == 8 ? 255 : 65535;
    const bool grey = layout_.grey();
    for (std::uint32_t x = 0; x < columns; ++x, to += rgb_channels) {
      const std::uint64_t alpha = layout_.alpha == Layout::Alpha::none ? top : sample(x, y, layout_.samples - 1);
      for (int c = 0; c < rgb_channels; ++c) {
        std::uint64_t value = sample(x, y, grey ? 0 : c);
        if (layout_.white_is_zero) value = top - value;
        const bool premultiplied = layout_.alpha == Layout::Alpha::premultiplied;
        const std::uint64_t weighted = premultiplied ? std::min(value, alpha) * top : value * alpha;
        to[c] = static_cast<std::uint8_t>(((weighted + top * (top - alpha)) * 255 + top * top / 2) / (top * top));
      }
    }
  }

  const bool as_rgb_;  // false: the values of the file
  const std::shared_ptr<TiffFile> file_;
  const std::uint64_t place_;  // of its directory in the file
  const Layout layout_;
  RegionInfo info_;
  std::size_t part_bytes_ = 0, band_bytes_ = 0;
  std::vector<std::uint8_t> part_;  // one tile or strip as the library gives it; all planes of it
  std::vector<std::uint8_t> band_;  // a row of tiles, or a strip, as read() gives it
  int loaded_band_ = -1;
  std::vector<Hole> band_holes_;  // of the loaded band: only the columns
};

}  // namespace

std::shared_ptr<RegionSource> open_tiff(const std::shared_ptr<TiffFile>& file, const RegionOptions& options,
                                        const std::optional<std::array<double, 3>>& spacing_mm,
                                        const std::optional<Extent>& file_size) {
  Layout layout;
  if (!read_layout(*file, options.channels, layout)) return nullptr;
  const bool as_rgb = options.channels == 0;
  const std::uint64_t part =
      layout.tiled ? TIFFTileSize64(file->tiff()) : TIFFVStripSize64(file->tiff(), layout.part_height);
  const std::uint64_t band = static_cast<std::uint64_t>(channels_of(layout, as_rgb)) *
                             element_bytes(type_of(layout, as_rgb)) * layout.width * layout.part_height;
  const auto most = static_cast<std::uint64_t>(options.memory_bytes);
  if (part == 0 || part > most || band > most || part * static_cast<std::uint64_t>(layout.samples) + band > most) {
    throw PictureError(Reason::too_large,
                       std::string("one row of its ") + (layout.tiled ? "tiles" : "strips") +
                           " has more pixels than gate.slab allows: " + std::to_string(layout.width) + "x" +
                           std::to_string(layout.part_height) + "; raise gate.slab");
  }
  const std::uint64_t samples = layout.planes ? 1 : static_cast<std::uint64_t>(layout.samples);
  if (part <
      std::uint64_t{layout.part_width} * layout.part_height * samples * static_cast<std::uint64_t>(layout.bits / 8))
    unsupported("samples that do not lie side by side");
  return std::make_shared<TiffRegion>(file, layout, static_cast<std::int64_t>(part),
                                      spacing_mm ? *spacing_mm : aperio_spacing(*file), file_size, as_rgb);
}

}  // namespace millrace
