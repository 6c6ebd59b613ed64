#include "io/sinks/label_tiff.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <tiffio.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <vector>

#include "io/regions/open_region.hpp"
#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

/// Labels in slabs of some rows.
class FakeLabels final : public LabelRows {
 public:
  FakeLabels(int width, int height, int slab) : width_(width), height_(height), slab_(slab) {}
  static std::uint8_t label(int x, int y) { return static_cast<std::uint8_t>((x / 7 + y / 5 * 3) % 251); }
  void read(const Take& take) const override {
    for (int first = 0; first < height_; first += slab_) {
      std::vector<std::uint8_t> labels;
      for (int y = first; y < std::min(first + slab_, height_); ++y) {
        for (int x = 0; x < width_; ++x) labels.push_back(label(x, y));
      }
      take(first, labels);
    }
  }

 private:
  const int width_, height_, slab_;
};

void write(const std::string& path, int width, int height, const LabelRows& labels, const GeoTags& geo = {}) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0666);
  REQUIRE(file >= 0);
  try {
    find_label_tiff_writer()(file, width, height, geo, labels);
  } catch (...) {
    ::close(file);
    throw;
  }
  CHECK(::close(file) == 0);
}

TEST_CASE("a pyramid has all labels, and every second row and column in each further page") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  for (const auto& [width, height, slab] :
       {std::tuple{1, 1, 1}, {511, 513, 100}, {512, 512, 7}, {1500, 700, 64}, {30, 2600, 2600}}) {
    write(path, width, height, FakeLabels(width, height, slab));
    TIFF* const tiff = TIFFOpen(path.c_str(), "r");
    REQUIRE(tiff != nullptr);
    int pages = 0, wrong = 0;
    do {
      const int shrink = 1 << pages++;
      std::uint32_t w = 0, h = 0;
      TIFFGetField(tiff, TIFFTAG_IMAGEWIDTH, &w);
      TIFFGetField(tiff, TIFFTAG_IMAGELENGTH, &h);
      CHECK(w == static_cast<std::uint32_t>((width + shrink - 1) / shrink));
      CHECK(h == static_cast<std::uint32_t>((height + shrink - 1) / shrink));
      std::vector<std::uint8_t> tile(static_cast<std::size_t>(TIFFTileSize(tiff)));
      for (std::uint32_t top = 0; top < h; top += 512) {
        for (std::uint32_t left = 0; left < w; left += 512) {
          REQUIRE(TIFFReadTile(tiff, tile.data(), left, top, 0, 0) > 0);
          for (std::uint32_t y = top; y < std::min(top + 512, h); ++y) {
            for (std::uint32_t x = left; x < std::min(left + 512, w); ++x) {
              const auto expected = FakeLabels::label(static_cast<int>(x) * shrink, static_cast<int>(y) * shrink);
              wrong += static_cast<int>(tile[(y - top) * 512 + x - left] != expected);
            }
          }
        }
      }
    } while (TIFFReadDirectory(tiff) == 1);
    TIFFClose(tiff);
    CHECK(wrong == 0);
    const int longer = std::max(width, height);
    CHECK(pages == (longer <= 512 ? 1 : longer <= 1024 ? 2 : longer <= 2048 ? 3 : 4));
  }
}

std::string read_back(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

GeoTags some_geo_tags() {
  return {.pixel_scale = {0.5, 0.25, 0},
          .tie_points = {0, 0, 0, 500'000.125, 4'649'776.5, 0},
          .parameters = {6'378'137.0, 298.257223563},
          .keys = {1, 1, 0, 2, 1024, 0, 1, 1, 3072, 0, 1, 32633},
          .text = "WGS 84 / UTM zone 33N|"};
}

TEST_CASE("the place on Earth is in the first page, and is read from it") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  GeoTags turned;
  turned.transformation = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  turned.keys = {1, 1, 0, 0};
  for (const GeoTags& geo : {some_geo_tags(), turned, GeoTags{}}) {
    write(path, 700, 600, FakeLabels(700, 600, 50), geo);
    CHECK(open_region(path, {}, {})->info().geo == geo);
  }
}

TEST_CASE("tags of the place on Earth that have another type do not count") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  write(path, 700, 600, FakeLabels(700, 600, 50), some_geo_tags());
  std::string bytes = read_back(path);
  // The entry of a tag in the directory: its number, its type (12: double, 3: short), and how many values it has.
  for (const auto& [tag, type] : {std::pair{geo_tag::pixel_scale, 12}, {geo_tag::tie_points, 12}, {geo_tag::keys, 3}}) {
    const std::string entry{static_cast<char>(tag), static_cast<char>(tag >> 8U), static_cast<char>(type), 0};
    const std::size_t at = bytes.find(entry);
    REQUIRE(at != std::string::npos);
    bytes[at + 2] = type == 12 ? 16 : 1;  // whole numbers of as many or fewer bytes
  }
  std::ofstream(path, std::ios::binary) << bytes;
  const GeoTags geo = open_region(path, {}, {})->info().geo;
  CHECK(geo.pixel_scale.empty());
  CHECK(geo.tie_points.empty());
  CHECK(geo.keys.empty());
  CHECK(geo.text == some_geo_tags().text);
}

TEST_CASE("labels that do not have the rows of their picture are refused") {
  const TemporaryFolder folder;
  CHECK_THROWS_AS(write(folder.path() + "/a.tif", 10, 11, FakeLabels(10, 10, 3)), std::logic_error);
}

/// Ends the writer behind the header of its file.
class NoLabels final : public LabelRows {
 public:
  void read(const Take& /*take*/) const override { throw std::domain_error("no labels"); }
};

TEST_CASE("a pyramid is a BigTIFF if the tiles of all its pages have more than 4 GB before compression") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  struct Row {
    int width, height;
    bool big;
  };
  // 4 GB are 15,258 tiles. The first page of a column of tiles has 7,627 or 7,628, and the others have the rest.
  for (const Row& row : {Row{512, 512, false}, Row{512, 3'905'024, false}, Row{512, 3'905'025, true},
                         Row{1, 3'905'024, false}, Row{1, 3'905'025, true}, Row{54'272, 54'272, false},
                         Row{54'273, 54'273, true}, Row{2, 1'073'741'823, true}, Row{65'536, 1'000'000, true}}) {
    CAPTURE(row.width);
    CAPTURE(row.height);
    CHECK_THROWS_AS(write(path, row.width, row.height, NoLabels()), std::domain_error);
    CHECK(read_back(path).substr(0, 4) == std::string(row.big ? "II\x2B\0" : "II\x2A\0", 4));
  }
}

/// Labels that deflate cannot make smaller.
class NoisyLabels final : public LabelRows {
 public:
  NoisyLabels(int width, int height) : labels_(static_cast<std::size_t>(width) * static_cast<std::size_t>(height)) {
    std::mt19937 random(7);
    for (std::uint8_t& label : labels_) label = static_cast<std::uint8_t>(random());
  }
  void read(const Take& take) const override { take(0, labels_); }

 private:
  std::vector<std::uint8_t> labels_;
};

TEST_CASE("deflate never makes tiles so much larger that 4 GB of them do not fit into a classic TIFF") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  constexpr double tiles = 16 + 4 + 1, room = 4'294'967'296.0 / 4e9;  // of 512 x 512 pixels; 2^32 bytes
  write(path, 2048, 2048, NoisyLabels(2048, 2048));
  const auto bytes = static_cast<double>(std::filesystem::file_size(path));
  CHECK(bytes > tiles * 512 * 512);
  CHECK(bytes < tiles * 512 * 512 * (1 + (room - 1) / 10));  // most of the room is for the tags of a GeoTIFF
}

TEST_CASE("a classic TIFF that outgrows its offsets is an error, not a broken file") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT, 0666);
  REQUIRE(file >= 0);
  REQUIRE(::ftruncate(file, (std::int64_t{1} << 32) - 1000) == 0);  // a hole: libtiff appends tiles to the file
  CHECK_THROWS_WITH_AS(find_label_tiff_writer()(file, 600, 600, {}, NoisyLabels(600, 600)),
                       doctest::Contains("the TIFF encoder failed to write a tile: "), std::runtime_error);
  ::close(file);
}

TEST_CASE("a TIFF that cannot be written is an error") {
  const int file = ::open("/dev/full", O_RDWR);
  if (file < 0) return;
  CHECK_THROWS_AS(find_label_tiff_writer()(file, 600, 600, {}, FakeLabels(600, 600, 3)), std::runtime_error);
  ::close(file);
}

}  // namespace
}  // namespace millrace
