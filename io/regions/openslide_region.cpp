// The code of libmillrace_openslide.so.
#include <openslide.h>
#include <tiffio.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/regions/region_plugin.hpp"
#include "io/regions/tiff_region.hpp"

namespace millrace {
namespace {

constexpr int out_channels = 3;
constexpr std::int64_t pixel_bytes = 4;           // as OpenSlide gives it
constexpr std::int64_t cache_bytes = 32LL << 20;  // OpenSlide keeps so many bytes of tiles for each open file
constexpr std::int64_t piece_columns = 4096;      // OpenSlide draws pieces of this width into memory of its own
constexpr std::int64_t most_reduction = 1024;     // of a level whose labels have the pixels of level 0
constexpr std::int64_t rows_without_tiles = 256;  // of a band, in formats whose tiles have no common height

struct Close {
  void operator()(openslide_t* slide) const { openslide_close(slide); }
};
using Slide = std::unique_ptr<openslide_t, Close>;

std::string text_of(openslide_t* slide, const std::string& name) {
  const char* const text = openslide_get_property_value(slide, name.c_str());
  return text == nullptr ? "" : text;
}

/// A property above 0; 0 if there is none.
double number_of(openslide_t* slide, const std::string& name) {
  const std::string text = text_of(slide, name);
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && std::isfinite(number) && number > 0 ? number : 0;
}

std::string short_text(double number) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.4g", number);
  return text.data();
}

struct Level {
  int number = 0;
  std::int64_t width = 0, height = 0;
  std::int64_t tile_width = 0, tile_height = 0;  ///< 0: its tiles have no common size
  double reduction = 1;                          ///< from level 0
  std::array<double, 2> mpp{};                   ///< of columns and rows; 0: unknown
  std::array<double, 3> spacing_mm{};            ///< RegionInfo::spacing_mm
  std::optional<Extent> file_size{};             ///< RegionInfo::file_size
  std::int64_t band_rows() const { return std::min(tile_height > 0 ? tile_height : rows_without_tiles, height); }
};

/// Micrometres a pixel of level 0; 0: unknown.
/// Of a TIFF of no vendor, only the tags of the resolution could say it. Most programs write 72 or 96 dots per inch
/// there, so these count only `with_tags`.
std::array<double, 2> mpp_of(openslide_t* slide, bool with_tags) {
  const std::array mpp{number_of(slide, OPENSLIDE_PROPERTY_NAME_MPP_X),
                       number_of(slide, OPENSLIDE_PROPERTY_NAME_MPP_Y)};
  if (mpp[0] > 0 && mpp[1] > 0) return mpp;
  if (!with_tags) return {};
  const std::string unit = text_of(slide, "tiff.ResolutionUnit");
  const double micrometres = unit == "centimeter" ? 10'000 : unit == "inch" ? 25'400 : 0;
  const double x = number_of(slide, "tiff.XResolution"), y = number_of(slide, "tiff.YResolution");
  return x > 0 && y > 0 ? std::array{micrometres / x, micrometres / y} : std::array<double, 2>{};
}

Level level_of(openslide_t* slide, int number, const std::array<double, 2>& finest) {
  Level level{.number = number};
  const std::string name = "openslide.level[" + std::to_string(number) + "].tile-";
  openslide_get_level_dimensions(slide, number, &level.width, &level.height);
  level.tile_width = static_cast<std::int64_t>(number_of(slide, name + "width"));
  level.tile_height = static_cast<std::int64_t>(number_of(slide, name + "height"));
  level.reduction = openslide_get_level_downsample(slide, number);
  std::int64_t width = 0, height = 0;
  openslide_get_level0_dimensions(slide, &width, &height);
  if (width < 1 || height < 1 || level.width < 1 || level.height < 1 || !(level.reduction >= 1))
    throw PictureError(Reason::corrupt_data, "level " + std::to_string(number) + " of this slide has no pixels");
  level.mpp = {finest[0] * static_cast<double>(width) / static_cast<double>(level.width),
               finest[1] * static_cast<double>(height) / static_cast<double>(level.height)};
  level.spacing_mm = {level.mpp[0] / 1000, level.mpp[1] / 1000, 0};
  return level;
}

/// Columns and rows are int, and a row of RGB must have a size that fits.
void check_size(std::int64_t width, std::int64_t height) {
  if (width > 100'000'000 || height > std::numeric_limits<int>::max() / 2)
    throw PictureError(Reason::too_large,
                       "a level of " + std::to_string(width) + "x" + std::to_string(height) + " pixels");
}

/// The level, if labels have the pixels of level 0.
Level with_labels_of_finest(Level level, openslide_t* slide) {
  const Level finest = level_of(slide, 0, mpp_of(slide, true));
  check_size(finest.width, finest.height);
  // Nobody reads level 0, so its size is only a claim, and its labels would take hours.
  if (finest.width > most_reduction * level.width || finest.height > most_reduction * level.height)
    throw PictureError(Reason::corrupt_data, "level 0 claims " + std::to_string(finest.width) + "x" +
                                                 std::to_string(finest.height) + " pixels, more than " +
                                                 std::to_string(most_reduction) + " times a side of level " +
                                                 std::to_string(level.number));
  if (level.width == finest.width && level.height == finest.height) return level;
  level.spacing_mm = finest.spacing_mm;
  level.file_size = Extent{static_cast<int>(finest.height), 1, static_cast<int>(finest.width)};
  return level;
}

/// The coarsest level whose pixels are at most as large as `mpp`.
Level level_for(openslide_t* slide, int levels, double mpp) {
  const std::array<double, 2> finest = mpp_of(slide, true);
  if (finest[0] <= 0)
    throw PictureError(Reason::unsupported_format,
                       "this slide does not say how many micrometres a pixel has; use decode.level, not decode.mpp");
  for (int number = levels - 1; number >= 0; --number) {
    const Level level = level_of(slide, number, finest);
    if (std::max(level.mpp[0], level.mpp[1]) <= mpp * (1 + same_mpp)) return level;
  }
  throw PictureError(Reason::unsupported_format,
                     "the finest pixels of this slide have " + short_text(std::max(finest[0], finest[1])) +
                         " micrometres, so it has none of " + short_text(mpp) + "; name a larger decode.mpp");
}

Level chosen_level(openslide_t* slide, const RegionOptions& options) {
  const int levels = openslide_get_level_count(slide);
  if (options.mpp > 0) {
    const Level level = level_for(slide, levels, options.mpp);
    return options.labels_back ? with_labels_of_finest(level, slide) : level;
  }
  if (options.level >= levels)
    throw PictureError(Reason::unsupported_format,
                       "this slide has " + std::to_string(levels) + (levels == 1 ? " level" : " levels") +
                           ", so there is no level " + std::to_string(options.level) + "; they count from 0");
  return level_of(slide, options.level, mpp_of(slide, false));
}

/// In double, since the header of a file may claim any size.
double needed_bytes(const Level& level) {
  const auto rows = static_cast<double>(level.band_rows());
  const double tile = static_cast<double>(level.tile_width) * static_cast<double>(level.tile_height);
  const double columns = static_cast<double>(level.width + std::min(level.width, piece_columns));
  return static_cast<double>(pixel_bytes) * (columns * rows + 2 * tile) + static_cast<double>(cache_bytes);
}

class OpenslideRegion final : public RegionSource {
 public:
  OpenslideRegion(Slide slide, const Level& level) : slide_(std::move(slide)), level_(level) {
    info_.size = {static_cast<int>(level.height), 1, static_cast<int>(level.width)};
    info_.channels = out_channels;
    info_.spacing_mm = level.spacing_mm;
    info_.file_size = level.file_size;
  }

  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override { return static_cast<std::int64_t>(needed_bytes(level_)); }

  void read(int first, int count, void* to) override {
    // Not before: the gate grants these bytes after the file was opened.
    band_.resize(static_cast<std::size_t>(level_.band_rows() * level_.width));
    auto* out = static_cast<std::uint8_t*>(to);
    for (int row = first; row < first + count; ++row, out += out_channels * level_.width) {
      const auto rows = static_cast<int>(level_.band_rows());
      if (row / rows != loaded_band_) load_band(row / rows);
      convert_row(band_.data() + row % rows * level_.width, out);
    }
  }

 private:
  // Whole bands, always from the same rows, so that pixels do not depend on the rows that are asked for.
  void load_band(int band) {
    loaded_band_ = -1;
    const std::int64_t top = band * level_.band_rows(), rows = std::min(level_.band_rows(), level_.height - top);
    // OpenSlide takes the place in pixels of level 0. Rounded down, so that the last rows are inside of the picture.
    const auto place = static_cast<std::int64_t>(static_cast<double>(top) * level_.reduction);
    openslide_read_region(slide_.get(), band_.data(), 0, place, level_.number, level_.width, rows);
    if (const char* const error = openslide_get_error(slide_.get()); error != nullptr)
      throw PictureError(Reason::corrupt_data, "rows " + std::to_string(top) + " to " + std::to_string(top + rows - 1) +
                                                   " of level " + std::to_string(level_.number) +
                                                   " cannot be read: " + error);
    loaded_band_ = band;
  }

  // Colours are multiplied by alpha already. They are blended over white, as in pictures that are decoded whole.
  void convert_row(const std::uint32_t* from, std::uint8_t* to) const {
    for (std::int64_t x = 0; x < level_.width; ++x, to += out_channels) {
      const std::uint32_t pixel = from[x], alpha = pixel >> 24;
      for (int c = 0; c < out_channels; ++c)
        to[c] = static_cast<std::uint8_t>(std::min((pixel >> (16 - 8 * c)) & 255, alpha) + 255 - alpha);
    }
  }

  const Slide slide_;
  const Level level_;
  RegionInfo info_;
  std::vector<std::uint32_t> band_;  // rows as OpenSlide gives them: alpha, red, green, blue
  int loaded_band_ = -1;
};

int ignore_message(TIFF* /*tiff*/, void* /*to*/, const char* /*module*/, const char* /*format*/, va_list /*words*/) {
  return 1;
}

/// Width and height of a picture of a TIFF with tiles; 0 of one without.
using PageSize = std::array<std::int64_t, 2>;

/// The sizes by directory; none if the file is no TIFF.
/// OpenSlide takes memory for a packed tile of a TIFF as the file claims its size, and ends the process if there is
/// none. So this checks the claims. Throws PictureError.
std::vector<PageSize> checked_pages(OpenFile file, std::int64_t most) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> settings(TIFFOpenOptionsAlloc(),
                                                                                  TIFFOpenOptionsFree);
  if (settings == nullptr) throw std::bad_alloc();
  TIFFOpenOptionsSetErrorHandlerExtR(settings.get(), ignore_message, nullptr);
  TIFFOpenOptionsSetWarningHandlerExtR(settings.get(), ignore_message, nullptr);
  TIFFOpenOptionsSetMaxSingleMemAlloc(settings.get(), most);
  const std::unique_ptr<TIFF, decltype(&TIFFClose)> tiff(
      TIFFFdOpenExt(file.descriptor(), "slide", "rm", settings.get()), TIFFClose);
  std::vector<PageSize> pages;
  if (tiff == nullptr) return pages;
  file.release();  // TIFFClose closes it
  do {
    pages.push_back({});
    if (TIFFIsTiled(tiff.get()) == 0) continue;
    std::uint32_t width = 0, height = 0;
    TIFFGetField(tiff.get(), TIFFTAG_IMAGEWIDTH, &width);
    TIFFGetField(tiff.get(), TIFFTAG_IMAGELENGTH, &height);
    pages.back() = {width, height};
    for (std::uint32_t tile = 0; tile < TIFFNumberOfTiles(tiff.get()); ++tile) {
      int failed = 0;
      const std::uint64_t bytes = TIFFGetStrileByteCountWithErr(tiff.get(), tile, &failed);
      if (failed != 0) break;  // OpenSlide fails too
      if (bytes > static_cast<std::uint64_t>(most))
        throw PictureError(Reason::corrupt_data, "tile " + std::to_string(tile) + " of directory " +
                                                     std::to_string(pages.size() - 1) + " claims " +
                                                     std::to_string(bytes) + " bytes, more than gate.slab");
    }
  } while (TIFFReadDirectory(tiff.get()) != 0);
  return pages;
}

/// The level as a picture of a plain TIFF, if it is one. libtiff gives its pixels as they are. OpenSlide interpolates
/// those of a level whose size does not divide that of level 0. Without JPEG, it also misplaces the rows of a level that
/// is lower than a tile.
std::shared_ptr<RegionSource> open_page(openslide_t* slide, const Level& level, const std::vector<PageSize>& pages,
                                        const std::string& path, const RegionOptions& options) {
  const std::string vendor = text_of(slide, OPENSLIDE_PROPERTY_NAME_VENDOR);
  if (vendor != "aperio" && vendor != "generic-tiff") return nullptr;
  const auto page = std::ranges::find(pages, PageSize{level.width, level.height});
  if (page == pages.end())
    throw PictureError(Reason::corrupt_data, "the directories of this slide contradict themselves");
  try {
    OpenFile file(path, {.max_bytes = std::numeric_limits<std::int64_t>::max()});
    const auto tiff = std::make_shared<TiffFile>(std::move(file), options.memory_bytes);
    tiff->go_to_number(static_cast<int>(page - pages.begin()));
    auto source = open_tiff(tiff, options, level.spacing_mm, level.file_size);
    if (source != nullptr) return source;
  } catch (const PictureError& error) {
    if (error.reason() != Reason::unsupported_format || vendor != "aperio") throw;
    return nullptr;  // only OpenSlide reads JPEG 2000 of Aperio
  }
  throw PictureError(Reason::unsupported_format,
                     "a level of a TIFF with a palette, or of another kind that is only read whole; convert it to RGB");
}

void open_slide(OpenFile file, const std::string& path, const RegionOptions& options,
                std::shared_ptr<RegionSource>& source) {
  // OpenSlide uses libtiff without handlers of its own, and libtiff would print to the terminal. The setting is of the
  // process, so only one thread makes it.
  static std::once_flag silent;
  std::call_once(silent, [] {
    TIFFSetErrorHandler(nullptr);
    TIFFSetWarningHandler(nullptr);
  });
  const std::vector<PageSize> pages = checked_pages(std::move(file), options.memory_bytes);
  Slide slide(openslide_open(path.c_str()));
  if (slide == nullptr)
    throw PictureError(Reason::unsupported_format,
                       "OpenSlide does not know this kind of slide, or its header is broken; convert it to a TIFF with "
                       "tiles and levels, or leave out decode.mpp and set decode.level=0 for its pixels as they are");
  if (const char* const error = openslide_get_error(slide.get()); error != nullptr)
    throw PictureError(Reason::corrupt_data, std::string("OpenSlide cannot open this slide: ") + error);
  const Level level = chosen_level(slide.get(), options);
  source = open_page(slide.get(), level, pages, path, options);
  if (source != nullptr) return;
  if (options.channels != 0 && options.channels != out_channels)
    throw PictureError(Reason::unsupported_format, "OpenSlide reads this slide as RGB, but the model takes " +
                                                       std::to_string(options.channels) +
                                                       (options.channels == 1 ? " channel" : " channels"));
  check_size(level.width, level.height);
  if (needed_bytes(level) > static_cast<double>(options.memory_bytes))
    throw PictureError(Reason::too_large, "one row of its tiles and OpenSlide's cache need " +
                                              short_text(needed_bytes(level) / 1e6) +
                                              " MB, more than gate.slab: " + std::to_string(level.width) + "x" +
                                              std::to_string(level.band_rows()) + " pixels; raise gate.slab");
  source = std::make_shared<OpenslideRegion>(std::move(slide), level);
}

}  // namespace
}  // namespace millrace

extern "C" __attribute__((visibility("default"))) void millrace_region_open(
    millrace::OpenFile file, const std::string& path, const millrace::RegionOptions& options,
    std::shared_ptr<millrace::RegionSource>& source) {
  millrace::open_slide(std::move(file), path, options, source);
}
