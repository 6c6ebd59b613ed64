#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <random>
#include <vector>

#include "io/regions/open_region.hpp"
#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

constexpr int width = 5, height = 4;

template <class T>
std::string bytes_of(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

/// An element with a short length.
std::string element(std::uint16_t group, std::uint16_t number, const char* type, std::string value) {
  if (value.size() % 2 != 0) value += type[0] == 'U' ? '\0' : ' ';
  return bytes_of(group) + bytes_of(number) + type + bytes_of(static_cast<std::uint16_t>(value.size())) + value;
}

/// An element with a long length, which may differ from that of its value.
std::string long_element(std::uint16_t group, std::uint16_t number, const char* type, std::uint32_t length,
                         const std::string& value = {}) {
  return bytes_of(group) + bytes_of(number) + type + std::string(2, '\0') + bytes_of(length) + value;
}

struct Options {
  std::string syntax = "1.2.840.10008.1.2.1";
  std::string position = "0\\0\\0";
  std::string before{};  ///< elements before those of the picture
  std::uint16_t rows = height, columns = width;
};

std::string pixels_of(int number) {
  std::string pixels;
  for (int i = 0; i < width * height; ++i) pixels += bytes_of(static_cast<std::int16_t>(number * 100 + i));
  return pixels;
}

std::string header_of(const Options& options) {
  return std::string(128, '\0') + "DICM" + element(2, 0x10, "UI", options.syntax) + options.before +
         element(0x18, 0x50, "DS", "2") + element(0x20, 0xE, "UI", "1.2.3") +
         element(0x20, 0x32, "DS", options.position) + element(0x20, 0x37, "DS", "1\\0\\0\\0\\1\\0") +
         element(0x28, 2, "US", bytes_of(std::uint16_t{1})) + element(0x28, 4, "CS", "MONOCHROME2") +
         element(0x28, 0x10, "US", bytes_of(options.rows)) + element(0x28, 0x11, "US", bytes_of(options.columns)) +
         element(0x28, 0x30, "DS", "0.5\\+7e-1 ") + element(0x28, 0x100, "US", bytes_of(std::uint16_t{16})) +
         element(0x28, 0x101, "US", bytes_of(std::uint16_t{16})) +
         element(0x28, 0x102, "US", bytes_of(std::uint16_t{15})) +
         element(0x28, 0x103, "US", bytes_of(std::uint16_t{1}));
}

std::string slice_of(int number, Options options = {}) {
  options.position = "0\\0\\" + std::to_string(2 * number);
  const std::string pixels = pixels_of(number);
  return header_of(options) + long_element(0x7FE0, 0x10, "OW", static_cast<std::uint32_t>(pixels.size()), pixels);
}

/// A slice with compressed pixels.
std::string packed_slice(const std::string& syntax, const std::string& data) {
  const auto part = [](std::uint16_t number, const std::string& value) {
    return bytes_of(std::uint16_t{0xFFFE}) + bytes_of(number) + bytes_of(static_cast<std::uint32_t>(value.size())) +
           value;
  };
  return header_of({.syntax = syntax}) +
         long_element(0x7FE0, 0x10, "OB", 0xFFFFFFFF, part(0xE000, "") + part(0xE000, data) + part(0xE0DD, ""));
}

/// The pixels of slice 0 as RLE: the high bytes are all zero, the low bytes stand for themselves.
std::string rle_data() {
  std::string data;
  for (const std::uint32_t value : {2U, 64U, 66U}) data += bytes_of(value);
  data.resize(64);
  data += static_cast<char>(257 - width * height);
  data += '\0';
  data += static_cast<char>(width * height - 1);
  for (int i = 0; i < width * height; ++i) data += static_cast<char>(i);
  return data;
}

void write(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

std::vector<float> read_all(const std::string& path, int step, const RegionOptions& limits = {}) {
  const auto region = open_region(path, {}, limits);
  REQUIRE(region != nullptr);
  const Extent size = region->info().size;
  std::vector<float> voxels(static_cast<std::size_t>(size.values()));
  for (int first = 0; first < size.rows; first += step)
    region->read(first, std::min(step, size.rows - first), voxels.data() + first * size.row_values());
  return voxels;
}

Reason reason_of(const std::string& path, std::string& text, const RegionOptions& limits = {}) {
  try {
    read_all(path, 1, limits);
  } catch (const PictureError& error) {
    text = error.what();
    return error.reason();
  }
  text = "no error";
  return Reason::internal;
}

std::vector<float> expected(int slices) {
  std::vector<float> voxels;
  for (int number = 0; number < slices; ++number) {
    for (int i = 0; i < width * height; ++i) voxels.push_back(static_cast<float>(number * 100 + i));
  }
  return voxels;
}

TEST_CASE("a DICOM series is read slice by slice, in the order of space") {
  const TemporaryFolder folder;
  const std::vector<std::string> names{"/b.dcm", "/c.DCM", "/a.dcm"};
  for (int number = 0; number < 3; ++number)
    write(folder.path() + names[static_cast<std::size_t>(number)], slice_of(number));
  write(folder.path() + "/notes.txt", "no slice");
  std::filesystem::create_directory(folder.path() + "/more.dcm");
  const std::string path = folder.path() + "/a.dcm";
  CHECK(is_read_in_parts(path));
  for (const int step : {1, 2, 3}) CHECK(read_all(path, step) == expected(3));
  const auto region = open_region(path, {}, {});
  const RegionInfo& info = region->info();
  CHECK(info.volume);
  CHECK(info.size == Extent{3, height, width});
  CHECK(info.spacing_mm == std::array<double, 3>{0.7, 0.5, 2});
  CHECK(info.nifti_header.size() == 348);
  CHECK(info.other_bytes == 2 * static_cast<std::int64_t>(slice_of(0).size()));

  // Labels of an earlier attempt belong to these files only.
  const std::string before = info.other_files;
  CHECK(open_region(path, {}, {})->info().other_files == before);
  write(folder.path() + "/b.dcm", slice_of(0) + "  ");
  CHECK(open_region(path, {}, {})->info().other_files != before);
  std::vector<float> row(width * height);
  try {
    region->read(0, 1, row.data());
    FAIL("read a file that changed");
  } catch (const PictureError& error) {
    CHECK(error.reason() == Reason::changed_since_plan);
    CHECK(error.what() == std::string("'b.dcm': it was modified after its series was opened"));
  }
}

TEST_CASE("nested data sets of known and unknown length are passed over") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.dcm";
  const std::string begin = bytes_of(std::uint16_t{0xFFFE}) + bytes_of(std::uint16_t{0xE000});
  const std::string item = begin + bytes_of(0xFFFFFFFFU);
  const std::string item_end = bytes_of(std::uint16_t{0xFFFE}) + bytes_of(std::uint16_t{0xE00D}) + bytes_of(0U);
  const std::string end = bytes_of(std::uint16_t{0xFFFE}) + bytes_of(std::uint16_t{0xE0DD}) + bytes_of(0U);
  // Rows of an icon, and its pixels in parts, are not those of the slice.
  const std::string icon = element(0x28, 0x10, "US", bytes_of(std::uint16_t{999})) +
                           long_element(0x7FE0, 0x10, "OB", 0xFFFFFFFF, begin + bytes_of(2U) + "xx" + end);
  // In a sequence of unknown type, elements have no type.
  const std::string untyped = bytes_of(std::uint16_t{0x28}) + bytes_of(std::uint16_t{0x11}) + bytes_of(2U) + "yy";
  const std::string known = begin + bytes_of(static_cast<std::uint32_t>(icon.size())) + icon;
  write(path, slice_of(0, {.before = long_element(8, 0x1110, "SQ", 0xFFFFFFFF, item + icon + item_end + end) +
                                     long_element(8, 0x1140, "SQ", static_cast<std::uint32_t>(known.size()), known) +
                                     long_element(9, 0x1010, "UN", 0xFFFFFFFF, item + untyped + item_end + end)}));
  CHECK(read_all(path, 1) == expected(1));
}

TEST_CASE("small DICOM files that ask for much cost no memory and no stack") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.dcm";
  std::string text;
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  write(path, slice_of(0, {.before = long_element(8, 0x1111, "OB", 0xF0000000)}));
  CHECK(reason_of(path, text) == Reason::truncated);
  CHECK(text == "'a.dcm': its header ends early");
  write(path, slice_of(0, {.before = long_element(0x18, 0x50, "UT", 0xF0000000)}));
  CHECK(reason_of(path, text) == Reason::corrupt_data);
  write(path, slice_of(0, {.rows = 32000, .columns = 32000}));
  CHECK(reason_of(path, text) == Reason::corrupt_data);
  write(path, packed_slice("1.2.840.10008.1.2.5", rle_data()));
  CHECK(read_all(path, 1) == expected(1));
  const RegionOptions small{.memory_bytes = width * height};
  CHECK(reason_of(path, text, small) == Reason::too_large);
  std::string nested;
  for (int i = 0; i < 400'000; ++i)
    nested += long_element(8, 0x1110, "SQ", 0xFFFFFFFF) + bytes_of(0xE000FFFEU) + bytes_of(0xFFFFFFFFU);
  write(path, slice_of(0, {.before = nested}));
  CHECK(reason_of(path, text) == Reason::truncated);
  write(path, slice_of(0, {.before = nested + nested}));
  CHECK(reason_of(path, text) == Reason::corrupt_data);
  CHECK(text == "'a.dcm': it has no pixels among its first million elements");
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  CHECK(after.ru_maxrss - before.ru_maxrss < 200 << 10);  // KiB
}

TEST_CASE("a pipe among the files of a series does not make the program wait") {
  const TemporaryFolder folder;
  write(folder.path() + "/a.dcm", slice_of(0));
  REQUIRE(::mkfifo((folder.path() + "/b.dcm").c_str(), 0600) == 0);
  std::string text;
  CHECK(reason_of(folder.path() + "/a.dcm", text) == Reason::not_regular);
  CHECK(text == "'b.dcm': a pipe, socket or device");
}

TEST_CASE("cut and changed DICOM files fail with a sentence") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.dcm";
  std::string text;
  // The example of JPEG-LS in ITU-T T.87, annex H.3, has another size. As it is shorter, more changes hit its header.
  const std::string jpeg_ls(
      "\xFF\xD8\xFF\xF7\x00\x0B\x08\x00\x04\x00\x05\x01\x01\x11\x00\xFF\xDA\x00\x08\x01\x01\x00\x00\x00\x00\xC0\x00\x00"
      "\x6C\x80\x20\x8E\x01\xC0\x00\x00\x57\x40\x00\x00\x6E\xE6\x00\x00\x01\xBC\x18\x00\x00\x05\xD8\x00\x00\x91\x60\xFF"
      "\xD9",
      57);
  const std::vector<std::string> files{slice_of(0), packed_slice("1.2.840.10008.1.2.5", rle_data()),
                                       packed_slice("1.2.840.10008.1.2.4.80", jpeg_ls)};
  for (const std::string& whole : files) {
    for (std::size_t size = 132; size < whole.size(); ++size) {
      write(path, whole.substr(0, size));
      const Reason reason = reason_of(path, text);
      CAPTURE(size);
      CAPTURE(text);
      // The last bytes only say that nothing follows.
      CHECK((reason == Reason::truncated || reason == Reason::unsupported_format || reason == Reason::corrupt_data));
      CHECK(text.starts_with("'a.dcm'"));
    }
    std::mt19937 random(4);
    for (int trial = 0; trial < 2000; ++trial) {
      std::string changed = whole;
      for (int i = 0; i < 3; ++i) changed[132 + random() % (whole.size() - 132)] = static_cast<char>(random());
      write(path, changed);
      if (reason_of(path, text, {.memory_bytes = 1 << 20}) != Reason::internal) CHECK(text.starts_with("'a.dcm'"));
    }
  }
}

}  // namespace
}  // namespace millrace
