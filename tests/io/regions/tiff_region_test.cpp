#include <doctest/doctest.h>
#include <sys/stat.h>
#include <tiffio.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "io/decode/decode.hpp"
#include "io/regions/open_region.hpp"
#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

struct Kind {
  int width = 0, height = 0;
  int samples = 3, bits = 8;
  int tile = 0;  ///< side of a tile; 0: strips
  int rows = 7;  ///< of a strip
  int compression = COMPRESSION_NONE;
  bool planes = false;
  int alpha = 0;  ///< value of the tag ExtraSamples
  bool big = false;
  int photometric = PHOTOMETRIC_RGB;
  const char* description = nullptr;
  int format = SAMPLEFORMAT_UINT;
};

/// Smooth colours with some noise, by row, column and sample.
std::uint32_t value_at(const Kind& kind, int y, int x, int s) {
  const std::uint32_t value = static_cast<std::uint32_t>(y * 7 + x * 3 + s * 40 + (y * x) % 11) % 256;
  return kind.bits == 8 ? value : value * 251 + static_cast<std::uint32_t>(x % 200);
}

/// The same as a number with a sign and a fraction.
float real_of(std::uint32_t value) { return static_cast<float>(value) / 7 - 900; }

/// The part of the picture from (top, left), as the library takes it. Places outside of the picture are 0.
std::vector<std::uint8_t> part_of(const Kind& kind, int top, int left, int height, int width, int plane) {
  std::vector<std::uint8_t> part;
  for (int y = top; y < top + height; ++y) {
    for (int x = left; x < left + width; ++x) {
      for (int s = 0; s < kind.samples; ++s) {
        if (kind.planes && s != plane) continue;
        const std::uint32_t value = y < kind.height && x < kind.width ? value_at(kind, y, x, s) : 0;
        if (kind.bits == 32) {
          const float real = real_of(value);
          const auto* const bytes = reinterpret_cast<const std::uint8_t*>(&real);
          part.insert(part.end(), bytes, bytes + sizeof(real));
          continue;
        }
        part.push_back(static_cast<std::uint8_t>(value));
        if (kind.bits == 16) part.push_back(static_cast<std::uint8_t>(value >> 8));
      }
    }
  }
  return part;
}

void write(const std::string& path, const Kind& kind) {
  TIFF* const tiff = TIFFOpen(path.c_str(), kind.big ? "w8" : "w");
  REQUIRE(tiff != nullptr);
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, kind.width);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, kind.height);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, kind.samples);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, kind.bits);
  TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, kind.format);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, kind.compression);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, kind.photometric);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, kind.planes ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
  if (kind.alpha != 0) {
    const auto extra = static_cast<std::uint16_t>(kind.alpha);
    TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &extra);
  }
  if (kind.description != nullptr) TIFFSetField(tiff, TIFFTAG_IMAGEDESCRIPTION, kind.description);
  if (kind.photometric == PHOTOMETRIC_YCBCR) TIFFSetField(tiff, TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
  const int planes = kind.planes ? kind.samples : 1;
  if (kind.tile > 0) {
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, kind.tile);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, kind.tile);
  } else {
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, kind.rows);
  }
  for (int plane = 0; plane < planes; ++plane) {
    const auto sample = static_cast<std::uint16_t>(plane);
    const int step = kind.tile > 0 ? kind.tile : kind.rows;
    for (int top = 0; top < kind.height; top += step) {
      if (kind.tile == 0) {
        auto part = part_of(kind, top, 0, std::min(step, kind.height - top), kind.width, plane);
        TIFFWriteEncodedStrip(tiff, TIFFComputeStrip(tiff, static_cast<std::uint32_t>(top), sample), part.data(),
                              static_cast<tmsize_t>(part.size()));
      }
      for (int left = 0; kind.tile > 0 && left < kind.width; left += kind.tile) {
        auto part = part_of(kind, top, left, kind.tile, kind.tile, plane);
        TIFFWriteEncodedTile(
            tiff, TIFFComputeTile(tiff, static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(top), 0, sample),
            part.data(), static_cast<tmsize_t>(part.size()));
      }
    }
  }
  TIFFClose(tiff);
}

std::vector<std::uint8_t> read_rows(RegionSource& region, int step) {
  const RegionInfo& info = region.info();
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(info.row_bytes()) *
                                   static_cast<std::size_t>(info.size.rows));
  for (int row = 0; row < info.size.rows; row += step)
    region.read(row, std::min(step, info.size.rows - row), pixels.data() + row * info.row_bytes());
  return pixels;
}

/// The pixels of the file when it is decoded whole.
std::vector<std::uint8_t> decoded(const std::string& path) {
  const FileBytes file = read_file(path, {});
  const DecodeLimits limits;
  const Decoded picture = decode(file.span(), probe(file.span(), limits), limits, pixels_on_heap);
  const std::uint8_t* const data = picture.pixels.data.get();
  return {data, data + picture.info.pixel_bytes};
}

/// RGB with 8 bits in double precision: alpha is blended over white.
std::vector<std::uint8_t> expected_pixels(const Kind& kind) {
  std::vector<std::uint8_t> pixels;
  const double top = kind.bits == 8 ? 255 : 65535;
  for (int y = 0; y < kind.height; ++y) {
    for (int x = 0; x < kind.width; ++x) {
      const double alpha = kind.alpha == 0 ? 1 : value_at(kind, y, x, kind.samples - 1) / top;
      for (int c = 0; c < 3; ++c) {
        double value = value_at(kind, y, x, kind.samples < 3 ? 0 : c) / top;
        if (kind.photometric == PHOTOMETRIC_MINISWHITE) value = 1 - value;
        value = kind.alpha == EXTRASAMPLE_ASSOCALPHA ? std::min(value, alpha) : value * alpha;
        pixels.push_back(static_cast<std::uint8_t>((value + 1 - alpha) * 255 + 0.5));
      }
    }
  }
  return pixels;
}

Reason reason_of(const std::string& path, std::string& text, std::int64_t memory = 64 << 20) {
  try {
    const auto region = open_region(path, {}, {memory});
    REQUIRE(region != nullptr);
    read_rows(*region, 5);
  } catch (const PictureError& error) {
    text = error.what();
    return error.reason();
  }
  text = "no error";
  return Reason::internal;
}

TEST_CASE("a TIFF that is read in parts has the pixels of one that is decoded whole") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  const std::vector<Kind> kinds{
      {.width = 100, .height = 50},
      {.width = 100, .height = 50, .rows = 50, .compression = COMPRESSION_LZW},
      {.width = 1, .height = 1},
      {.width = 1, .height = 90, .compression = COMPRESSION_ADOBE_DEFLATE},
      {.width = 100, .height = 50, .tile = 16, .compression = COMPRESSION_LZW},
      {.width = 33, .height = 70, .tile = 32, .compression = COMPRESSION_ADOBE_DEFLATE, .big = true},
      {.width = 100, .height = 50, .samples = 1, .tile = 16, .photometric = PHOTOMETRIC_MINISBLACK},
      {.width = 100, .height = 50, .samples = 1, .photometric = PHOTOMETRIC_MINISWHITE},
      {.width = 40, .height = 50, .bits = 16, .tile = 16},
      {.width = 40, .height = 50, .samples = 1, .bits = 16, .photometric = PHOTOMETRIC_MINISBLACK},
      {.width = 40, .height = 50, .tile = 16, .planes = true},
      {.width = 40, .height = 50, .bits = 16, .planes = true},
      {.width = 40, .height = 50, .samples = 4, .tile = 16, .alpha = EXTRASAMPLE_UNASSALPHA},
      {.width = 40, .height = 50, .samples = 4, .alpha = EXTRASAMPLE_ASSOCALPHA},
      {.width = 100, .height = 64, .tile = 32, .compression = COMPRESSION_JPEG, .photometric = PHOTOMETRIC_YCBCR},
      {.width = 100, .height = 64, .rows = 16, .compression = COMPRESSION_JPEG},
  };
  for (const Kind& kind : kinds) {
    CAPTURE(&kind - kinds.data());
    write(path, kind);
    CHECK(is_read_in_parts(path));
    const auto region = open_region(path, {}, {});
    REQUIRE(region != nullptr);
    CHECK(region->info().size == Extent{kind.height, 1, kind.width});
    CHECK(region->info().channels == 3);
    const auto whole = kind.compression == COMPRESSION_JPEG ? decoded(path) : expected_pixels(kind);
    // OpenCV reads no BigTIFF, not all tiles, and 16 bits in planes wrongly.
    Kind plain = kind;
    plain.big = plain.planes = false;
    plain.tile = 0;
    if (kind.compression != COMPRESSION_JPEG) {
      write(folder.path() + "/plain.tif", plain);
      CHECK(decoded(folder.path() + "/plain.tif") == whole);
    }
    for (const int step : {1, 7, 1000}) CHECK(read_rows(*open_region(path, {}, {}), step) == whole);
    // Rows before the first one that is wanted are skipped.
    std::vector<std::uint8_t> last(static_cast<std::size_t>(region->info().row_bytes()));
    region->read(kind.height - 1, 1, last.data());
    CHECK(std::equal(last.begin(), last.end(), whole.end() - static_cast<std::ptrdiff_t>(last.size())));
  }
}

TEST_CASE("memory of a TIFF is a row of its tiles, and limited") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  write(path, {.width = 1000, .height = 800, .tile = 16});
  CHECK(open_region(path, {}, {})->memory_bytes() == 3 * 16 * (1000 + 16));
  std::string text;
  CHECK(reason_of(path, text, 40'000) == Reason::too_large);
  CHECK(text.find("raise gate.slab") != std::string::npos);
}

TEST_CASE("a broken part is named") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  write(path, {.width = 200, .height = 200, .tile = 64, .compression = COMPRESSION_ADOBE_DEFLATE});
  const auto size = std::filesystem::file_size(path);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(size / 2));
  file.write("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", 40);
  file.close();
  std::string text;
  CHECK(reason_of(path, text) == Reason::corrupt_data);
  CHECK(text.starts_with("tile "));
  CHECK(text.find(" at column ") != std::string::npos);
  CHECK(text.find("cannot be read: ") != std::string::npos);
}

/// Overwrites the begin of tile or strip `number`.
void break_part(const std::string& path, std::uint32_t number) {
  TIFF* const tiff = TIFFOpen(path.c_str(), "r");
  REQUIRE(tiff != nullptr);
  const std::uint64_t at = TIFFGetStrileOffset(tiff, number);
  TIFFClose(tiff);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(at));
  file.write("xxxxxxxxxxxxxxxx", 16);
}

TEST_CASE("broken parts are holes of zeros, and the other pixels are those of the whole file") {
  struct Broken {
    Kind kind;
    std::vector<std::uint32_t> parts;
    std::vector<Hole> holes;
  };
  const std::vector<Hole> of_tiles{{32, 64, 0, 32}, {32, 64, 64, 100}, {64, 80, 96, 100}};
  const std::vector<Hole> of_strips{{0, 16, 0, 100}, {64, 80, 0, 100}};
  const std::vector<Broken> all{
      {{.width = 100, .height = 80, .tile = 32, .compression = COMPRESSION_ADOBE_DEFLATE}, {4, 6, 7, 11}, of_tiles},
      {{.width = 100, .height = 80, .tile = 32, .compression = COMPRESSION_LZW}, {4, 6, 7, 11}, of_tiles},
      {{.width = 100, .height = 80, .tile = 32, .compression = COMPRESSION_JPEG, .photometric = PHOTOMETRIC_YCBCR},
       {4, 6, 7, 11},
       of_tiles},
      // One broken plane of three makes the hole.
      {{.width = 100, .height = 80, .tile = 32, .compression = COMPRESSION_LZW, .planes = true},
       {4, 12 + 6, 24 + 7, 12 + 11, 24 + 11},
       of_tiles},
      {{.width = 100, .height = 80, .rows = 16, .compression = COMPRESSION_ADOBE_DEFLATE}, {0, 4}, of_strips},
      {{.width = 100, .height = 80, .rows = 16, .compression = COMPRESSION_LZW}, {0, 4}, of_strips},
      {{.width = 100, .height = 80, .rows = 16, .compression = COMPRESSION_JPEG}, {0, 4}, of_strips},
  };
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  for (const Broken& broken : all) {
    CAPTURE(&broken - all.data());
    write(path, broken.kind);
    auto expected = read_rows(*open_region(path, {}, {}), 80);
    for (const Hole& hole : broken.holes) {
      for (int row = hole.first_row; row < hole.end_row; ++row)
        std::fill(expected.begin() + 3 * (100 * row + hole.first_column),
                  expected.begin() + 3 * (100 * row + hole.end_column), std::uint8_t{0});
    }
    for (const std::uint32_t part : broken.parts) break_part(path, part);
    std::string text;
    CHECK(reason_of(path, text) == Reason::corrupt_data);
    for (const int step : {1, 7, 80}) {
      const auto region = open_region(path, {}, {});
      std::vector<std::uint8_t> pixels(expected.size(), 1);
      std::vector<int> found(pixels.size() / 3), wanted(found.size());
      const auto mark = [](const Hole& hole, std::vector<int>& at) {
        for (int row = hole.first_row; row < hole.end_row; ++row)
          for (int x = hole.first_column; x < hole.end_column; ++x) ++at[static_cast<std::size_t>(100 * row + x)];
      };
      for (int row = 0; row < 80; row += step) {
        const int count = std::min(step, 80 - row);
        std::vector<Hole> holes;
        region->read_with_holes(row, count, pixels.data() + 3 * 100 * row, holes);
        for (const Hole& hole : holes) {
          CHECK(hole.first_row >= row);
          CHECK(hole.end_row <= row + count);
          mark(hole, found);
        }
        if (step == 80) CHECK(holes == broken.holes);  // neighbours are one hole
      }
      for (const Hole& hole : broken.holes) mark(hole, wanted);
      CHECK(found == wanted);
      CHECK(pixels == expected);
    }
  }
}

TEST_CASE("cut and changed TIFFs fail or give pixels, and never end the process") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  std::mt19937 random(3);
  for (const Kind& kind :
       {Kind{.width = 100, .height = 80, .tile = 32, .compression = COMPRESSION_LZW},
        Kind{.width = 100, .height = 80, .tile = 32, .compression = COMPRESSION_JPEG, .photometric = PHOTOMETRIC_YCBCR},
        Kind{.width = 100, .height = 80, .bits = 16, .compression = COMPRESSION_ADOBE_DEFLATE, .big = true}}) {
    write(path, kind);
    std::ifstream in(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
    for (int trial = 0; trial < 400; ++trial) {
      std::vector<char> changed = bytes;
      if (trial % 4 == 0) {
        changed.resize(random() % changed.size());
      } else {
        // Half of the changes hit the directory, which is at the end.
        const std::size_t from = trial % 2 == 0 ? changed.size() - 300 : 0;
        for (int i = 0; i < 3; ++i) changed[from + random() % (changed.size() - from)] = static_cast<char>(random());
      }
      std::ofstream(path, std::ios::binary).write(changed.data(), static_cast<std::streamsize>(changed.size()));
      try {
        if (!is_read_in_parts(path)) continue;
        if (const auto region = open_region(path, {}, {1 << 20}))
          if (region->info().size.rows < 10'000) {
            std::vector<Hole> holes;
            std::vector<std::uint8_t> row(static_cast<std::size_t>(region->info().row_bytes()));
            for (int y = 0; trial % 3 == 0 && y < region->info().size.rows; ++y)
              region->read_with_holes(y, 1, row.data(), holes);
            if (trial % 3 != 0) read_rows(*region, 9);
          }
      } catch (const PictureError& error) {
        CHECK(std::strlen(error.what()) > 10);
      }
    }
  }
}

TEST_CASE("kinds that are only decoded whole, and kinds that are not read at all") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  std::string text;
  write(path, {.width = 10, .height = 10, .samples = 2, .photometric = PHOTOMETRIC_MINISBLACK});
  CHECK(reason_of(path, text) == Reason::unsupported_format);
  CHECK(text.starts_with("a TIFF with 2 channels; in parts, "));
  write(path, {.width = 10, .height = 10, .samples = 1, .bits = 32, .photometric = PHOTOMETRIC_MINISBLACK});
  CHECK(reason_of(path, text) == Reason::unsupported_format);
  CHECK_FALSE(is_read_in_parts(folder.path() + "/none.tif"));
  REQUIRE(::mkfifo((folder.path() + "/pipe.tif").c_str(), 0600) == 0);
  CHECK_FALSE(is_read_in_parts(folder.path() + "/pipe.tif"));  // returns, and does not wait for a writer
  std::ofstream(path) << "II*";
  CHECK_FALSE(is_read_in_parts(path));
  CHECK_THROWS_AS(open_region(folder.path() + "/none.tif", {}, {}), PictureError);
  CHECK_THROWS_AS(open_region(path, {.bytes = 1000}, {}), PictureError);
}

/// The value of a file, as a model gets it that takes the channels of the file.
float kept_value(const Kind& kind, int y, int x, int s) {
  const std::uint32_t value = value_at(kind, y, x, s);
  if (kind.format == SAMPLEFORMAT_IEEEFP) return real_of(value);
  if (kind.format == SAMPLEFORMAT_UINT) return static_cast<float>(value);
  return kind.bits == 8 ? static_cast<float>(static_cast<std::int8_t>(value))
                        : static_cast<float>(static_cast<std::int16_t>(value));
}

TEST_CASE("the channels of a file keep their values") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  constexpr int grey = PHOTOMETRIC_MINISBLACK;
  for (const Kind& kind :
       {Kind{.width = 40, .height = 50, .samples = 1, .bits = 16, .photometric = grey},
        Kind{.width = 40, .height = 50, .samples = 1, .photometric = PHOTOMETRIC_MINISWHITE},
        Kind{.width = 40, .height = 50, .samples = 2, .tile = 16, .photometric = grey},
        Kind{.width = 40, .height = 50, .samples = 3, .bits = 16, .tile = 16},
        Kind{.width = 40, .height = 50, .samples = 4, .alpha = EXTRASAMPLE_ASSOCALPHA},
        Kind{.width = 40, .height = 50, .samples = 4, .photometric = PHOTOMETRIC_SEPARATED},
        Kind{.width = 40, .height = 50, .samples = 13, .bits = 16, .tile = 16, .planes = true, .photometric = grey},
        Kind{.width = 40, .height = 50, .samples = 16, .bits = 16, .photometric = grey, .format = SAMPLEFORMAT_INT},
        Kind{.width = 40, .height = 50, .samples = 5, .tile = 32, .photometric = grey, .format = SAMPLEFORMAT_INT},
        Kind{.width = 40,
        .height = 50,
        .samples = 5,
        .bits = 32,
        .tile = 16,
        .compression = COMPRESSION_ADOBE_DEFLATE,
        .planes = true,
        .photometric = grey,
        .format = SAMPLEFORMAT_IEEEFP}}) {
    CAPTURE(kind.samples);
    CAPTURE(kind.bits);
    write(path, kind);
    const auto region = open_region(path, {}, {.channels = kind.samples});
    REQUIRE(region != nullptr);
    const RegionInfo& info = region->info();
    CHECK(info.channels == kind.samples);
    CHECK(info.type == (kind.bits == 8 && kind.format == SAMPLEFORMAT_UINT ? DType::u8 : DType::f32));
    const std::vector<std::uint8_t> bytes = read_rows(*region, 7);
    std::size_t wrong = 0;
    for (int y = 0; y < kind.height; ++y) {
      for (int x = 0; x < kind.width; ++x) {
        for (int s = 0; s < kind.samples; ++s) {
          const auto at = static_cast<std::size_t>((y * kind.width + x) * kind.samples + s);
          float value = 0;
          if (info.type == DType::u8) {
            value = bytes[at];
          } else {
            std::memcpy(&value, bytes.data() + 4 * at, sizeof(value));
          }
          wrong += value == kept_value(kind, y, x, s) ? 0 : 1;
        }
      }
    }
    CHECK(wrong == 0);
    // Memory counts the values as they are given.
    CHECK(region->memory_bytes() >= info.row_bytes() * (kind.tile > 0 ? kind.tile : kind.rows));
    CHECK_THROWS_WITH_AS(open_region(path, {}, {.channels = kind.samples == 16 ? 6 : kind.samples + 1}),
                         doctest::Contains("but the model takes"), PictureError);
  }
}

TEST_CASE("values that no model gets as they are") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  write(path, {.width = 40, .height = 50, .samples = 1, .bits = 32, .photometric = PHOTOMETRIC_MINISBLACK});
  CHECK_THROWS_WITH_AS(open_region(path, {}, {.channels = 1}),
                       "a TIFF with unsigned whole numbers of 32 bits; whole numbers of 8 or 16 bits and "
                       "floating-point numbers of 32 bits are read",
                       PictureError);
  // Colours whose samples do not lie side by side.
  for (const int tile : {0, 16}) {
    write(path, {.width = 40, .height = 50, .tile = tile, .compression = COMPRESSION_LZW});
    std::ifstream file(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(file), {}};
    const std::size_t at = bytes.find(std::string("\x06\x01\x03\x00\x01\x00\x00\x00\x02\x00", 10));
    REQUIRE(at != std::string::npos);
    bytes[at + 8] = PHOTOMETRIC_YCBCR;
    std::ofstream(path, std::ios::binary) << bytes;
    CHECK_THROWS_WITH_AS(open_region(path, {}, {.channels = 3}), doctest::Contains("colours as brightness and chroma"),
                         PictureError);
    CHECK(open_region(path, {}, {}) == nullptr);
  }
  // Values of 4 bytes need four times the memory of those of one.
  write(path,
        {.width = 1000, .height = 50, .samples = 1, .bits = 16, .rows = 10, .photometric = PHOTOMETRIC_MINISBLACK});
  CHECK(open_region(path, {}, {.memory_bytes = 20'000 + 40'000, .channels = 1}) != nullptr);
  CHECK_THROWS_AS(open_region(path, {}, {.memory_bytes = 20'000 + 40'000 - 1, .channels = 1}), PictureError);
}

TEST_CASE("slides of Aperio say how large a pixel is; other descriptions mean nothing") {
  const TemporaryFolder folder;
  for (const auto& [description, spacing] :
       {std::pair{"Aperio Image Library v11.2.1|AppMag = 20|MPP = 0.4990|Left = 25.6", 0.000499},
        {"Aperio Image Library|MPP = 2", 0.002},
        {"Aperio Image Library|MPP = ", 0.0},
        {"Aperio Image Library|MPP = none|", 0.0},
        {"Aperio Image Library|MPP = -1|", 0.0},
        {"Aperio Image Library|MPP = 1e999|", 0.0},
        {"Aperio Image Library|MPP = inf|", 0.0},
        {"Aperio Image Library|AppMag = 20", 0.0},
        {"another program|MPP = 0.4990|", 0.0},
        {"", 0.0},
        {static_cast<const char*>(nullptr), 0.0}}) {
    Kind kind{20, 10};
    kind.description = description;
    write(folder.path() + "/a.svs", kind);
    const auto found = open_region(folder.path() + "/a.svs", {}, {})->info().spacing_mm;
    CHECK(found[0] == doctest::Approx(spacing));
    CHECK(found[1] == found[0]);
  }
}

}  // namespace
}  // namespace millrace
