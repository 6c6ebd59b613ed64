#include <doctest/doctest.h>
#include <tiffio.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "io/regions/open_region.hpp"
#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

constexpr std::int64_t memory = 64 << 20;

/// A TIFF with levels. Of Trestle, OpenSlide gives the pixels. Without the marks of a vendor, libtiff does.
struct Pyramid {
  std::vector<std::pair<int, int>> levels{{200, 120}, {100, 60}, {50, 30}};
  int samples = 3;
  int compression = COMPRESSION_ADOBE_DEFLATE;
  double mpp = 0.5;  ///< of level 0; 0: none
  int tile = 16;
  bool big = false;
  bool trestle = false;
  bool inches = false;
};

std::uint8_t value_at(int level, int y, int x, int s) {
  return static_cast<std::uint8_t>(level * 50 + y * 7 + x * 3 + s * 40 + (y * x) % 11);
}

void write(const std::string& path, const Pyramid& pyramid) {
  TIFF* const tiff = TIFFOpen(path.c_str(), pyramid.big ? "w8" : "w");
  REQUIRE(tiff != nullptr);
  for (int level = 0; level < static_cast<int>(pyramid.levels.size()); ++level) {
    const auto [width, height] = pyramid.levels[static_cast<std::size_t>(level)];
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, width);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, height);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, pyramid.samples);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8);
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, pyramid.compression);
    const bool jpeg = pyramid.compression == COMPRESSION_JPEG;
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, jpeg ? PHOTOMETRIC_YCBCR : PHOTOMETRIC_RGB);
    if (jpeg) TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, pyramid.tile);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, pyramid.tile);
    if (level > 0) TIFFSetField(tiff, TIFFTAG_SUBFILETYPE, FILETYPE_REDUCEDIMAGE);
    if (pyramid.mpp > 0) {
      const double unit = pyramid.inches ? 25'400 : 10'000;
      const double resolution = pyramid.trestle ? pyramid.mpp : unit / pyramid.mpp;
      TIFFSetField(tiff, TIFFTAG_RESOLUTIONUNIT, pyramid.inches ? RESUNIT_INCH : RESUNIT_CENTIMETER);
      TIFFSetField(tiff, TIFFTAG_XRESOLUTION, resolution);
      TIFFSetField(tiff, TIFFTAG_YRESOLUTION, resolution);
    }
    if (pyramid.trestle) {
      TIFFSetField(tiff, TIFFTAG_SOFTWARE, "MedScan");
      TIFFSetField(tiff, TIFFTAG_IMAGEDESCRIPTION, "Objective Power=20");
    }
    const std::uint16_t alpha = EXTRASAMPLE_UNASSALPHA;
    if (pyramid.samples == 4) TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &alpha);
    for (int top = 0; top < height; top += pyramid.tile) {
      for (int left = 0; left < width; left += pyramid.tile) {
        std::vector<std::uint8_t> part;
        for (int y = top; y < top + pyramid.tile; ++y)
          for (int x = left; x < left + pyramid.tile; ++x)
            for (int s = 0; s < pyramid.samples; ++s) part.push_back(value_at(level, y, x, s));
        TIFFWriteTile(tiff, part.data(), static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(top), 0, 0);
      }
    }
    TIFFWriteDirectory(tiff);
  }
  TIFFClose(tiff);
}

std::vector<std::uint8_t> pixels_of(RegionSource& region, int step) {
  const RegionInfo& info = region.info();
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(info.row_bytes() * info.size.rows));
  for (int row = 0; row < info.size.rows; row += step)
    region.read(row, std::min(step, info.size.rows - row), pixels.data() + row * info.row_bytes());
  return pixels;
}

/// RGB of a level; alpha is blended over white.
std::vector<std::uint8_t> expected_pixels(const Pyramid& pyramid, int level) {
  const auto [width, height] = pyramid.levels[static_cast<std::size_t>(level)];
  std::vector<std::uint8_t> pixels;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const double alpha = pyramid.samples == 4 ? value_at(level, y, x, 3) / 255.0 : 1;
      for (int s = 0; s < 3; ++s)
        pixels.push_back(static_cast<std::uint8_t>(value_at(level, y, x, s) * alpha + 255 * (1 - alpha) + 0.5));
    }
  }
  return pixels;
}

std::shared_ptr<RegionSource> open_slide(const std::string& path, int level, double mpp = 0) {
  auto region = open_region(path, {}, {.memory_bytes = memory, .level = level, .mpp = mpp});
  REQUIRE(region != nullptr);
  return region;
}

Reason reason_of(const std::string& path, std::string& text, const RegionOptions& options) {
  try {
    const auto region = open_region(path, {}, options);
    REQUIRE(region != nullptr);
    pixels_of(*region, 5);
  } catch (const PictureError& error) {
    text = error.what();
    return error.reason();
  }
  text = "no error";
  return Reason::internal;
}

TEST_CASE("a level of a slide has the pixels that were written, for any rows that are asked for") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  for (const Pyramid& pyramid :
       {Pyramid{}, Pyramid{.compression = COMPRESSION_LZW, .tile = 64}, Pyramid{.samples = 4},
        Pyramid{.levels = {{203, 403}, {50, 100}}},
        Pyramid{.levels = {{6000, 400}, {3000, 200}}, .compression = COMPRESSION_NONE, .tile = 256, .big = true},
        Pyramid{.trestle = true}, Pyramid{.samples = 4, .trestle = true},
        Pyramid{.levels = {{10'000, 64}, {5000, 32}}, .trestle = true}}) {
    write(path, pyramid);
    for (int level = 1; level < static_cast<int>(pyramid.levels.size()); ++level) {
      CAPTURE(pyramid.trestle);
      CAPTURE(level);
      const auto [width, height] = pyramid.levels[static_cast<std::size_t>(level)];
      const auto expected = expected_pixels(pyramid, level);
      for (const int step : {1, 7, 1000}) {
        const auto region = open_slide(path, level);
        CHECK(region->info().size == Extent{height, 1, width});
        CHECK(region->info().channels == 3);
        const auto pixels = pixels_of(*region, step);
        REQUIRE(pixels.size() == expected.size());
        int worst = 0;
        for (std::size_t i = 0; i < pixels.size(); ++i) worst = std::max(worst, std::abs(pixels[i] - expected[i]));
        // OpenSlide multiplies colours by alpha in 8 bits.
        CHECK(worst <= (pyramid.trestle && pyramid.samples == 4 ? 1 : 0));
        // Rows before the first one that is wanted are skipped.
        const auto again = open_slide(path, level);
        std::vector<std::uint8_t> last(static_cast<std::size_t>(region->info().row_bytes()));
        again->read(height - 1, 1, last.data());
        CHECK(std::equal(last.begin(), last.end(), pixels.end() - static_cast<std::ptrdiff_t>(last.size())));
      }
    }
  }
}

TEST_CASE("OpenSlide and libtiff give the same pixels of level 0") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  for (const Pyramid& pyramid : {Pyramid{.trestle = true}, Pyramid{.compression = COMPRESSION_JPEG, .trestle = true},
                                 Pyramid{.compression = COMPRESSION_JPEG, .tile = 128, .trestle = true}}) {
    write(path, pyramid);
    const auto slide = open_slide(path, 0, 0.5), tiff = open_slide(path, 0);
    CHECK(slide->memory_bytes() > (32 << 20));  // OpenSlide's cache: this is not libtiff
    CHECK(tiff->memory_bytes() < 200'000);
    CHECK(pixels_of(*slide, 9) == pixels_of(*tiff, 9));
  }
}

TEST_CASE("rows of a level that does not divide level 0 are near the right ones, and none is missing") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  const Pyramid pyramid{.levels = {{203, 403}, {50, 100}}, .trestle = true};
  write(path, pyramid);
  const auto expected = expected_pixels(pyramid, 1);
  const auto pixels = pixels_of(*open_slide(path, 1), 100);
  CHECK(pixels == pixels_of(*open_slide(path, 1), 3));
  // The first band starts at row 0, so it is exact.
  CHECK(std::equal(pixels.begin(), pixels.begin() + 3 * 50 * 16, expected.begin()));
  // A row is a mean of itself and the row before, with less weight. No row has white of outside.
  for (std::size_t i = 3 * 50 * 16; i < pixels.size(); ++i) {
    const auto [low, high] = std::minmax(expected[i], expected[i - std::size_t{3} * 50]);
    REQUIRE(pixels[i] >= low - 2);  // at the seams of tiles, OpenSlide rounds twice
    REQUIRE(pixels[i] <= high + 2);
  }
}

TEST_CASE("micrometres choose the coarsest level that is fine enough") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  write(path, {});  // levels of 0.5, 1 and 2 micrometres
  for (const auto& [mpp, rows] : std::vector<std::pair<double, int>>{
           {0.496, 120}, {0.5, 120}, {0.98, 120}, {0.995, 60}, {1, 60}, {1.9, 60}, {2, 30}, {100, 30}}) {
    CAPTURE(mpp);
    const auto region = open_slide(path, 0, mpp);
    CHECK(region->info().size.rows == rows);
    CHECK(region->info().spacing_mm[0] == doctest::Approx(0.06 / rows));
    CHECK(region->info().spacing_mm[1] == doctest::Approx(0.06 / rows));
  }
  CHECK(open_slide(path, 1)->info().spacing_mm[0] == 0);  // the tags of the resolution count only if somebody asks
  write(path, {.inches = true});
  CHECK(open_slide(path, 0, 1)->info().spacing_mm[0] == doctest::Approx(0.001));
  write(path, {.trestle = true});
  CHECK(open_slide(path, 0, 2)->info().spacing_mm[1] == doctest::Approx(0.002));
  std::string text;
  CHECK(reason_of(path, text, {.mpp = 0.49}) == Reason::unsupported_format);
  CHECK(text ==
        "the finest pixels of this slide have 0.5 micrometres, so it has none of 0.49; name a larger decode.mpp");
  write(path, {.mpp = 0});
  CHECK(reason_of(path, text, {.mpp = 1}) == Reason::unsupported_format);
  CHECK(text.ends_with("use decode.level, not decode.mpp"));
}

TEST_CASE("labels of a level may have the pixels of level 0") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  for (const bool trestle : {false, true}) {  // libtiff reads the one, and OpenSlide the other
    write(path, {.trestle = trestle});
    const RegionInfo level_0 = open_slide(path, 0, 0.5)->info();
    for (const auto& [mpp, rows] : std::vector<std::pair<double, int>>{{0.5, 120}, {1, 60}, {1.5, 60}, {5, 30}}) {
      CAPTURE(mpp);
      const RegionInfo info = open_region(path, {}, {.mpp = mpp, .labels_back = true})->info();
      CHECK(info.size.rows == rows);
      CHECK(info.file_size == (rows == 120 ? std::nullopt : std::optional(level_0.size)));
      CHECK(info.spacing_mm == level_0.spacing_mm);
    }
  }
  for (const auto& [width, reason] : std::vector<std::pair<int, std::optional<Reason>>>{
           {32 * 1024, std::nullopt}, {32 * 1024 + 1, Reason::corrupt_data}}) {
    write(path, {.levels = {{width, 32}, {32, 16}}});
    std::string text;
    if (reason) {
      CHECK(reason_of(path, text, {.mpp = 1000, .labels_back = true}) == reason);
      CHECK(text == "level 0 claims 32769x32 pixels, more than 1024 times a side of level 1");
    }
    const auto level = open_region(path, {}, {.mpp = 1000, .labels_back = !reason});
    CHECK(level->info().size == Extent{16, 1, 32});
  }
}

TEST_CASE("what a slide lacks is named") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  std::string text;
  write(path, {});
  CHECK(reason_of(path, text, {.level = 3}) == Reason::unsupported_format);
  CHECK(text == "this slide has 3 levels, so there is no level 3; they count from 0");
  write(path, {.levels = {{40, 40}}});
  CHECK(reason_of(path, text, {.level = 1}) == Reason::unsupported_format);
  CHECK(text.starts_with("this slide has 1 level, "));
  for (const char* const name : {"/b.ndpi", "/b.MRXS", "/b.svslide"}) {
    std::ofstream(folder.path() + name) << "no slide";
    CHECK(is_slide_name(folder.path() + name));
    CHECK(is_read_in_parts(folder.path() + name));
    CHECK(reason_of(folder.path() + name, text, {}) == Reason::unsupported_format);
    CHECK(text.starts_with("OpenSlide does not know this kind of slide, or its header is broken"));
  }
  std::filesystem::create_directory(folder.path() + "/c.ndpi");
  CHECK_FALSE(is_read_in_parts(folder.path() + "/c.ndpi"));
  CHECK(reason_of(folder.path() + "/c.ndpi", text, {}) == Reason::not_regular);
}

TEST_CASE("memory of a slide is a row of its tiles with OpenSlide's cache, and limited") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  write(path, {.levels = {{2000, 800}, {1000, 400}}});
  CHECK(open_slide(path, 1)->memory_bytes() == 3 * 16 * (1000 + 16));
  write(path, {.levels = {{2000, 800}, {1000, 400}}, .trestle = true});
  CHECK(open_slide(path, 1)->memory_bytes() == (32 << 20) + 4 * (16 * 2000 + 2 * 16 * 16));
  std::string text;
  CHECK(reason_of(path, text, {.memory_bytes = 32 << 20, .level = 1}) == Reason::too_large);
  CHECK(text.ends_with("raise gate.slab"));
}

TEST_CASE("a broken tile is named by its place") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  for (const bool trestle : {false, true}) {
    const Pyramid pyramid{.levels = {{200, 120}, {100, 60}}, .trestle = trestle};
    write(path, pyramid);
    TIFF* const tiff = TIFFOpen(path.c_str(), "r");
    TIFFSetDirectory(tiff, 1);
    const std::uint64_t place = TIFFGetStrileOffset(tiff, 7);  // the second row of tiles
    TIFFClose(tiff);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(place));
    file.write("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 40);
    file.close();
    const auto region = open_slide(path, 1);
    std::vector<std::uint8_t> rows(static_cast<std::size_t>(region->info().row_bytes() * 16));
    region->read(0, 16, rows.data());
    const auto expected = expected_pixels(pyramid, 1);
    CHECK(std::equal(rows.begin(), rows.end(), expected.begin()));
    std::string text;
    CHECK(reason_of(path, text, {.memory_bytes = memory, .level = 1}) == Reason::corrupt_data);
    CHECK(text.starts_with(trestle ? "rows 16 to 31 of level 1 cannot be read: "
                                   : "tile 7 at column 0, row 16 cannot be read: "));
  }
}

TEST_CASE("a tile that claims more bytes than there is memory fails before OpenSlide takes them") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  write(path, {.compression = COMPRESSION_JPEG});
  const RegionOptions options{.memory_bytes = 60'000, .level = 1};
  std::string text;
  CHECK(reason_of(path, text, options) == Reason::internal);
  CHECK(text == "no error");
  // libtiff writes the sizes of these tiles as 16-bit numbers.
  std::string sizes;
  TIFF* const tiff = TIFFOpen(path.c_str(), "r");
  TIFFSetDirectory(tiff, 1);
  for (std::uint32_t tile = 0; tile < TIFFNumberOfTiles(tiff); ++tile) {
    const auto size = static_cast<std::uint16_t>(TIFFGetStrileByteCount(tiff, tile));
    sizes.append(reinterpret_cast<const char*>(&size), sizeof(size));
  }
  TIFFClose(tiff);
  std::ifstream in(path, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  const std::size_t at = bytes.find(sizes);
  REQUIRE(at != std::string::npos);
  bytes.replace(at + 6, 2, "\xff\xff");
  std::ofstream(path, std::ios::binary) << bytes;
  CHECK(reason_of(path, text, options) == Reason::corrupt_data);
  CHECK(text == "tile 3 of directory 1 claims 65535 bytes, more than gate.slab");
}

TEST_CASE("a level of a kind that is only read whole fails") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  TIFF* const tiff = TIFFOpen(path.c_str(), "w");
  for (int level = 0; level < 2; ++level) {
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, 64 >> level);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, 64 >> level);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, 1);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 8);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_PALETTE);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, COMPRESSION_NONE);
    std::vector<std::uint16_t> colours(256, 1000);
    TIFFSetField(tiff, TIFFTAG_COLORMAP, colours.data(), colours.data(), colours.data());
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, 16);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, 16);
    if (level > 0) TIFFSetField(tiff, TIFFTAG_SUBFILETYPE, FILETYPE_REDUCEDIMAGE);
    std::vector<std::uint8_t> tile(256, 7);
    for (std::uint32_t number = 0; number < TIFFNumberOfTiles(tiff); ++number)
      TIFFWriteEncodedTile(tiff, number, tile.data(), 256);
    TIFFWriteDirectory(tiff);
  }
  TIFFClose(tiff);
  std::string text;
  CHECK(reason_of(path, text, {.memory_bytes = memory, .level = 1}) == Reason::unsupported_format);
  CHECK(text.starts_with("a level of a TIFF with a palette, "));
}

TEST_CASE("cut and changed slides fail or give pixels, and never end the process") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  std::mt19937 random(5);
  for (const Pyramid& pyramid :
       {Pyramid{.compression = COMPRESSION_LZW, .tile = 32}, Pyramid{.compression = COMPRESSION_JPEG},
        Pyramid{.compression = COMPRESSION_JPEG, .tile = 64, .big = true},
        Pyramid{.compression = COMPRESSION_JPEG, .tile = 64, .big = true, .trestle = true},
        Pyramid{.compression = COMPRESSION_LZW, .trestle = true}}) {
    write(path, pyramid);
    std::ifstream in(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
    for (int trial = 0; trial < 300; ++trial) {
      std::vector<char> changed = bytes;
      if (trial % 4 == 0) {
        changed.resize(random() % changed.size());
      } else {
        // Half of the changes hit the last directory, which is at the end.
        const std::size_t from = trial % 2 == 0 ? changed.size() - 400 : 0;
        for (int i = 0; i < 3; ++i) changed[from + random() % (changed.size() - from)] = static_cast<char>(random());
      }
      std::ofstream(path, std::ios::binary).write(changed.data(), static_cast<std::streamsize>(changed.size()));
      try {
        if (!is_read_in_parts(path)) continue;
        if (const auto region = open_region(path, {}, {.memory_bytes = memory, .level = 1 + trial % 2}))
          if (region->info().size.rows < 10'000) pixels_of(*region, 9);
      } catch (const PictureError& error) {
        CHECK(std::strlen(error.what()) > 10);
      }
    }
  }
}

}  // namespace
}  // namespace millrace
