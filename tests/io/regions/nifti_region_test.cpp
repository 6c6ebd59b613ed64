#include <doctest/doctest.h>
#include <zlib.h>

#include <cstring>
#include <fstream>
#include <random>
#include <vector>

#include "io/regions/open_region.hpp"
#include "io/sinks/label_nifti.hpp"
#include "tests/io/files/temporary_folder.hpp"

#include <fcntl.h>
#include <unistd.h>

namespace millrace {
namespace {

constexpr int width = 5, height = 4, depth = 3;

template <class T>
void put(std::string& bytes, std::size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof(value));
}

/// A header as nifti1.h lays it out.
std::string header_of(std::int16_t datatype, std::int16_t bits, std::int16_t volumes = 1) {
  std::string header(352, '\0');
  put(header, 0, std::int32_t{348});
  const std::int16_t sides[8] = {
      static_cast<std::int16_t>(volumes > 1 ? 4 : 3), width, height, depth, volumes, 1, 1, 1};
  std::memcpy(header.data() + 40, sides, sizeof(sides));
  put(header, 70, datatype);
  put(header, 72, bits);
  const float steps[8] = {1, 0.5F, 2, 3, 1, 1, 1, 1};
  std::memcpy(header.data() + 76, steps, sizeof(steps));
  put(header, 108, 352.0F);
  put(header, 254, std::int16_t{1});  // sform
  const float space[12] = {-0.5F, 0, 0, 10, 0, 2, 0, -20, 0, 0, 3, 30};
  std::memcpy(header.data() + 280, space, sizeof(space));
  std::memcpy(header.data() + 344, "n+1", 4);
  return header;
}

void write(const std::string& path, const std::string& bytes) {
  if (path.ends_with(".gz")) {
    const gzFile file = gzopen(path.c_str(), "wb");
    REQUIRE(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())) == static_cast<int>(bytes.size()));
    gzclose(file);
  } else {
    std::ofstream(path, std::ios::binary) << bytes;
  }
}

template <class T>
std::string voxels_of(int volumes = 1) {
  std::string bytes;
  for (int i = 0; i < volumes * width * height * depth; ++i) {
    const auto value = static_cast<T>(i * 3 % 120);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  return bytes;
}

std::vector<float> read_all(const std::string& path, int step = 1, int volume = 0) {
  const auto region = open_region(path, {}, {.volume = volume});
  REQUIRE(region != nullptr);
  CHECK(region->info().size == Extent{depth, height, width});
  CHECK(region->info().volume);
  std::vector<float> voxels(static_cast<std::size_t>(width * height * depth));
  for (int first = 0; first < depth; first += step)
    region->read(first, std::min(step, depth - first), voxels.data() + first * width * height);
  return voxels;
}

std::vector<float> expected(int volume = 0, float slope = 1, float intercept = 0) {
  std::vector<float> voxels;
  for (int i = 0; i < width * height * depth; ++i)
    voxels.push_back(static_cast<float>((volume * width * height * depth + i) * 3 % 120) * slope + intercept);
  return voxels;
}

Reason reason_of(const std::string& path, std::string& text, const RegionOptions& options = {}) {
  try {
    const auto region = open_region(path, {}, options);
    REQUIRE(region != nullptr);
    std::vector<float> rows(static_cast<std::size_t>(region->info().size.values() * region->info().channels));
    region->read(0, region->info().size.rows, rows.data());
  } catch (const PictureError& error) {
    text = error.what();
    return error.reason();
  }
  text = "no error";
  return Reason::internal;
}

TEST_CASE("a NIfTI is read slice by slice, compressed or not, in all types of numbers") {
  const TemporaryFolder folder;
  for (const char* name : {"/a.nii", "/a.nii.gz"}) {
    const std::string path = folder.path() + name;
    const std::vector<std::string> files{
        header_of(2, 8) + voxels_of<std::uint8_t>(),  header_of(256, 8) + voxels_of<std::int8_t>(),
        header_of(4, 16) + voxels_of<std::int16_t>(), header_of(512, 16) + voxels_of<std::uint16_t>(),
        header_of(8, 32) + voxels_of<std::int32_t>(), header_of(768, 32) + voxels_of<std::uint32_t>(),
        header_of(16, 32) + voxels_of<float>(),       header_of(64, 64) + voxels_of<double>()};
    for (const std::string& file : files) {
      write(path, file);
      CHECK(is_read_in_parts(path));
      for (const int step : {1, 2, 3}) CHECK(read_all(path, step) == expected());
    }
  }
}

TEST_CASE("scale and intercept, one volume of several, spacing") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.nii.gz";
  std::string header = header_of(4, 16, 3);
  put(header, 112, 0.5F);
  put(header, 116, -7.0F);
  write(path, header + voxels_of<std::int16_t>(3));
  for (int volume = 0; volume < 3; ++volume) CHECK(read_all(path, 2, volume) == expected(volume, 0.5F, -7));
  CHECK(open_region(path, {}, {})->info().spacing_mm == std::array<double, 3>{0.5, 2, 3});
  std::string text;
  CHECK(reason_of(path, text, {.volume = 3}) == Reason::unsupported_format);
  CHECK(text == "this NIfTI has 3 volumes, so there is no volume 3; they count from 0");
}

TEST_CASE("several volumes of a file are channels") {
  const TemporaryFolder folder;
  std::string header = header_of(4, 16, 4);
  put(header, 112, 0.5F);
  put(header, 116, -7.0F);
  for (const char* name : {"/a.nii", "/a.nii.gz"}) {
    const std::string path = folder.path() + name;
    write(path, header + voxels_of<std::int16_t>(4));
    for (const int step : {1, 2, 3}) {
      const auto region = open_region(path, {}, {.volume = 1, .volumes = 3});
      const RegionInfo& info = region->info();
      CHECK(info.channels == 3);
      std::vector<float> voxels(static_cast<std::size_t>(3 * info.size.values()));
      for (int first = 0; first < depth; first += step)
        region->read(first, std::min(step, depth - first), voxels.data() + first * 3 * info.size.row_values());
      for (int channel = 0; channel < 3; ++channel) {
        const std::vector<float> wanted = expected(1 + channel, 0.5F, -7);
        std::size_t wrong = 0;
        for (std::size_t i = 0; i < wanted.size(); ++i)
          wrong += voxels[3 * i + static_cast<std::size_t>(channel)] == wanted[i] ? 0 : 1;
        CHECK(wrong == 0);
      }
    }
    std::string text;
    CHECK(reason_of(path, text, {.volume = 2, .volumes = 3}) == Reason::unsupported_format);
    CHECK(text == "this NIfTI has 4 volumes, but the model takes 3 channels from volume 2 on; lower decode.volume");
    CHECK(reason_of(path, text, {.volumes = 5}) == Reason::unsupported_format);
  }
  const std::string path = folder.path() + "/one.nii";
  write(path, header_of(4, 16) + voxels_of<std::int16_t>());
  std::string text;
  CHECK(reason_of(path, text, {.volumes = 2}) == Reason::unsupported_format);
  CHECK(text ==
        "this NIfTI has 1 volume, but the model takes 2 channels; merge the files of its channels into one NIfTI");
  // One slice of all channels must fit.
  write(path, header + voxels_of<std::int16_t>(4));
  CHECK(reason_of(path, text, {.memory_bytes = 4 * 8 * width * height, .volumes = 4}) == Reason::internal);
  CHECK(reason_of(path, text, {.memory_bytes = 4 * 8 * width * height - 1, .volumes = 4}) == Reason::too_large);
}

TEST_CASE("the directions of a volume come from its place in space") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.nii";
  std::string header = header_of(4, 16);
  write(path, header + voxels_of<std::int16_t>());
  CHECK(open_region(path, {}, {})->info().directions == Directions{{{-0.5, 0, 0}, {0, 2, 0}, {0, 0, 3}}});
  put(header, 254, std::int16_t{0});
  write(path, header + voxels_of<std::int16_t>());
  CHECK(open_region(path, {}, {})->info().directions == Directions{});
  put(header, 252, std::int16_t{1});  // qform: half a turn about x
  put(header, 256, 1.0F);
  write(path, header + voxels_of<std::int16_t>());
  const Directions turned = open_region(path, {}, {})->info().directions;
  CHECK(turned[0][0] == doctest::Approx(0.5));
  CHECK(turned[1][1] == doctest::Approx(-2));
  CHECK(turned[2][2] == doctest::Approx(-3));
}

TEST_CASE("spacing is in millimetres, whatever the unit of the file") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.nii";
  for (const auto& [unit, factor] : {std::pair{char{2}, 1.0}, {char{1}, 1000.0}, {char{3}, 0.001}, {char{0}, 1.0}}) {
    std::string header = header_of(4, 16);
    header[123] = unit;
    write(path, header + voxels_of<std::int16_t>());
    const auto spacing = open_region(path, {}, {})->info().spacing_mm;
    CHECK(spacing[0] == doctest::Approx(0.5 * factor));
    CHECK(spacing[2] == doctest::Approx(3 * factor));
  }
}

TEST_CASE("numbers in the other byte order") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.nii";
  std::string bytes = header_of(4, 16) + voxels_of<std::int16_t>();
  const auto swap = [&](std::size_t begin, std::size_t count, std::size_t size) {
    for (std::size_t i = 0; i < count; ++i)
      std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(begin + i * size),
                   bytes.begin() + static_cast<std::ptrdiff_t>(begin + (i + 1) * size));
  };
  swap(0, 1, 4), swap(40, 8, 2), swap(70, 1, 2), swap(72, 1, 2), swap(76, 8, 4), swap(108, 1, 4), swap(254, 1, 2);
  swap(280, 12, 4), swap(352, static_cast<std::size_t>(width * height * depth), 2);
  write(path, bytes);
  CHECK(read_all(path) == expected());
}

TEST_CASE("cut, changed and absurd NIfTIs fail with a sentence") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.nii.gz";
  std::string text;
  const std::string whole = header_of(4, 16) + voxels_of<std::int16_t>();
  write(path, whole.substr(0, whole.size() - 30));
  CHECK(reason_of(path, text) == Reason::truncated);
  CHECK(text == "the data of this NIfTI end in slice 2 of 3");
  write(path, header_of(1792, 128) + whole);  // complex numbers
  CHECK(reason_of(path, text) == Reason::unsupported_format);
  std::string absurd = header_of(4, 16);
  const std::int16_t sides[4] = {3, 32767, 32767, 32767};
  std::memcpy(absurd.data() + 40, sides, sizeof(sides));
  write(path, absurd);
  CHECK(reason_of(path, text) == Reason::too_large);
  std::mt19937 random(4);
  for (int trial = 0; trial < 300; ++trial) {
    std::string changed = whole;
    for (int i = 0; i < 3; ++i) changed[random() % 352] = static_cast<char>(random());
    write(path, changed);
    try {
      if (const auto region = open_region(path, {}, {1 << 20})) {
        std::vector<float> slice(static_cast<std::size_t>(region->info().size.row_values()));
        region->read(0, 1, slice.data());
      }
    } catch (const PictureError& error) {
      CHECK(std::strlen(error.what()) > 10);
    }
  }
}

TEST_CASE("labels are written as a NIfTI at the place of their volume") {
  const TemporaryFolder folder;
  const std::string from = folder.path() + "/a.nii.gz", to = folder.path() + "/labels.nii.gz";
  write(from, header_of(4, 16, 2) + voxels_of<std::int16_t>(2));
  const std::string header = open_region(from, {}, {})->info().nifti_header;
  const auto labels = std::make_shared<std::vector<std::uint8_t>>();
  for (int i = 0; i < width * height * depth; ++i) labels->push_back(static_cast<std::uint8_t>(i * 3 % 120));
  const LabelsInMemory rows(std::shared_ptr<const std::uint8_t[]>(labels, labels->data()), labels->size());
  const int file = ::open(to.c_str(), O_RDWR | O_CREAT, 0666);
  write_label_nifti(file, header, rows);
  ::close(file);
  CHECK(read_all(to) == expected());
  CHECK(open_region(to, {}, {})->info().spacing_mm == std::array<double, 3>{0.5, 2, 3});
  CHECK_THROWS_AS(write_label_nifti(-1, "short", rows), std::invalid_argument);
}

}  // namespace
}  // namespace millrace
