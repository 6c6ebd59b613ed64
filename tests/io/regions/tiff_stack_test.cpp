#include <doctest/doctest.h>
#include <tiffio.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

#include "io/regions/open_region.hpp"
#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

/// A page whose samples are all `value`, or one more from sample to sample.
struct Page {
  int value = 0;
  int width = 20, height = 12;
  int samples = 1, bits = 8;
  int tile = 0, rows = 12;  ///< side of a tile, or 0: strips of so many rows
  int photometric = PHOTOMETRIC_MINISBLACK, compression = COMPRESSION_NONE;
};

void write_page(TIFF* tiff, const Page& page, const std::string& description) {
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, page.width);
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, page.height);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, page.samples);
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, page.bits);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, page.compression);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, page.photometric);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG);
  if (!description.empty()) TIFFSetField(tiff, TIFFTAG_IMAGEDESCRIPTION, description.c_str());
  if (page.photometric == PHOTOMETRIC_PALETTE) {
    const std::vector<std::uint16_t> colours(256);
    TIFFSetField(tiff, TIFFTAG_COLORMAP, colours.data(), colours.data(), colours.data());
  }
  if (page.tile > 0) {
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, page.tile);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, page.tile);
  } else {
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, page.rows);
  }
  const tmsize_t size = page.tile > 0 ? TIFFTileSize(tiff) : TIFFStripSize(tiff);
  std::vector<std::uint8_t> part(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < part.size(); ++i)
    part[i] = static_cast<std::uint8_t>(page.value + static_cast<int>(i) % page.samples);
  const std::uint32_t parts = page.tile > 0 ? TIFFNumberOfTiles(tiff) : TIFFNumberOfStrips(tiff);
  for (std::uint32_t number = 0; number < parts; ++number)
    page.tile > 0 ? TIFFWriteEncodedTile(tiff, number, part.data(), size)
                  : TIFFWriteEncodedStrip(tiff, number, part.data(), size);
  TIFFWriteDirectory(tiff);
}

void write(const std::string& path, const std::string& description, const std::vector<Page>& pages) {
  TIFF* const tiff = TIFFOpen(path.c_str(), "w");
  REQUIRE(tiff != nullptr);
  for (const Page& page : pages) write_page(tiff, page, &page == pages.data() ? description : "");
  TIFFClose(tiff);
}

/// Pages with the values 0, 1, and so on.
std::vector<Page> numbered(int count, Page like = {}) {
  std::vector<Page> pages;
  for (like.value = 0; like.value < count; ++like.value) pages.push_back(like);
  return pages;
}

struct Sizes {
  std::string z = "1", c = "1", t = "1", order = "XYZCT", x = "20", y = "12";
};

std::string ome(const Sizes& sizes, const std::string& inside = "", const std::string& attributes = "",
                const std::string& root = "") {
  return "<?xml version=\"1.0\" encoding=\"UTF-8\"?><!-- a warning --><OME xmlns=\"http://www.openmicroscopy.org\"" +
         root + "><Image ID=\"Image:0\"><Pixels DimensionOrder=\"" + sizes.order + "\" SizeX=\"" + sizes.x +
         "\" SizeY=\"" + sizes.y + "\" SizeZ=\"" + sizes.z + "\" SizeC=\"" + sizes.c + "\" SizeT=\"" + sizes.t + "\" " +
         attributes + ">" + inside + "</Pixels></Image><Image><Pixels/></Image></OME>";
}

/// One value of each row and channel of a region: [row][channel]. All pixels of a row are equal.
std::vector<float> values_of(RegionSource& region) {
  const RegionInfo& info = region.info();
  const std::size_t channels = static_cast<std::size_t>(info.channels);
  std::vector<std::uint8_t> row(static_cast<std::size_t>(info.row_bytes()));
  std::vector<float> values;
  for (int y = 0; y < info.size.rows; ++y) {
    region.read(y, 1, row.data());
    std::vector<float> all(row.size() / element_bytes(info.type));
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i] = row[i];
      if (info.type == DType::f32) std::memcpy(&all[i], row.data() + sizeof(float) * i, sizeof(float));
    }
    for (std::size_t i = channels; i < all.size(); ++i) REQUIRE(all[i] == all[i % channels]);
    values.insert(values.end(), all.begin(), all.begin() + info.channels);
  }
  return values;
}

std::vector<float> read(const std::string& path, const RegionOptions& options = {}) {
  const auto region = open_region(path, {}, options);
  REQUIRE(region != nullptr);
  return values_of(*region);
}

std::string fault(const std::string& path, Reason reason, const RegionOptions& options = {}) {
  try {
    const auto region = open_region(path, {}, options);
    REQUIRE(region != nullptr);
    values_of(*region);
  } catch (const PictureError& error) {
    CHECK(error.reason() == reason);
    return error.what();
  }
  return "no error";
}

TEST_CASE("TiffData gives each plane its page") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  const auto volume = [&](const Sizes& sizes, const std::string& data, const RegionOptions& options, int pages = 12) {
    write(path, ome(sizes, data), numbered(pages));
    return read(path, options);
  };
  const Sizes three{.z = "3", .c = "2", .t = "2"};
  // Pages of two channels, slice by slice, of the second point in time.
  const RegionOptions second{.volume = 1, .volumes = 2};
  CHECK(volume(three, "", second) == std::vector<float>{6, 9, 7, 10, 8, 11});
  Sizes turned = three;
  turned.order = "XYTCZ";
  CHECK(volume(turned, "", second) == std::vector<float>{1, 3, 5, 7, 9, 11});
  CHECK(volume(turned, "<TiffData/>", second) == std::vector<float>{1, 3, 5, 7, 9, 11});
  // A run in the order of the planes, and planes one by one.
  const Sizes two{.z = "2", .c = "2"};
  const RegionOptions both{.volumes = 2};
  CHECK(volume(two, "<TiffData IFD='4' FirstZ='1' PlaneCount='3'/><TiffData IFD='9'/>", both) ==
        std::vector<float>{9, 5, 4, 6});
  CHECK(volume(two, "<TiffData FirstC='1' IFD='1' FirstZ='1'/><TiffData PlaneCount='3' IFD='7'/>", both) ==
        std::vector<float>{7, 9, 8, 1});
  CHECK(volume(two, "<TiffData PlaneCount='2'/><TiffData IFD='5' FirstC='1' PlaneCount='2'/>", both) ==
        std::vector<float>{0, 5, 1, 6});
  // A prefix of names, and the names of the file itself.
  write(path,
        "\xEF\xBB\xBF <x:OME UUID='u:1'><x:Image><x:Pixels SizeX='20' SizeY='12' SizeZ='2' SizeC='1' SizeT='1' "
        "DimensionOrder='XYZCT'><x:TiffData IFD='1' PlaneCount='2'><x:UUID FileName='old.tif'>u:1</x:UUID>"
        "</x:TiffData></x:Pixels></x:Image></x:OME>",
        numbered(3));
  CHECK(read(path) == std::vector<float>{1, 2});
  for (const char* const files :
       {"<TiffData IFD='0'><UUID FileName='a.tif'/></TiffData><TiffData IFD='1' FirstZ='1'><UUID FileName='b.tif'/>"
        "</TiffData>",
        "<TiffData IFD='0'><UUID>u:1</UUID></TiffData><TiffData IFD='1' FirstZ='1'><UUID>u:2</UUID></TiffData>"}) {
    write(path, ome({.z = "2"}, files), numbered(2));
    CHECK(fault(path, Reason::unsupported_format) ==
          "an OME-TIFF that is spread over several files; convert it to one file");
  }
  write(path, ome({.z = "2"}, "<TiffData><UUID>u:2</UUID></TiffData>", "", " UUID='u:1'"), numbered(2));
  CHECK(fault(path, Reason::unsupported_format).find("several files") != std::string::npos);
  write(path, ome({.z = "2"}, "<TiffData><UUID FileName='old.tif'/></TiffData>"), numbered(2));
  CHECK(read(path) == std::vector<float>{0, 1});
  write(path, "<OME><BinaryOnly MetadataFile='a.companion.ome' UUID='u:2'/></OME>", numbered(2));
  CHECK(fault(path, Reason::unsupported_format).find("several files") != std::string::npos);
}

TEST_CASE("samples of a page are channels") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  const auto pages = [](int count) {
    auto all = numbered(count, {.samples = 3, .tile = 16, .photometric = PHOTOMETRIC_RGB});
    for (Page& page : all) page.value *= 10;
    return all;
  };
  // Six channels in two pages, and the second one begins with channel 3.
  write(path, ome({.z = "2", .c = "6"}), pages(4));
  const std::vector<float> six{0, 1, 2, 20, 21, 22, 10, 11, 12, 30, 31, 32};
  CHECK(read(path, {.volumes = 6}) == six);
  write(path, ome({.z = "2", .c = "6"}, "<TiffData PlaneCount='2'/><TiffData IFD='2' FirstC='3' PlaneCount='2'/>"),
        pages(4));
  CHECK(read(path, {.volumes = 6}) == six);
  write(path, ome({.c = "6"}), pages(2));
  const auto picture = open_region(path, {}, {.channels = 6});
  CHECK(picture->info().type == DType::u8);
  const auto row = values_of(*picture);
  CHECK(std::vector<float>(row.begin(), row.begin() + 6) == std::vector<float>{0, 1, 2, 10, 11, 12});
  // A page with all channels is a picture as without OME-XML, of any model.
  write(path, ome({.c = "3", .t = "2"}), pages(2));
  CHECK(open_region(path, {}, {.channels = 3})->info().channels == 3);
  CHECK(read(path, {.volume = 1})[0] == 10);
  write(path, ome({.z = "2", .c = "5"}), pages(4));
  CHECK(fault(path, Reason::corrupt_data) == "an OME-TIFF with 5 channels, but 3 of them in a page");
  // Of JPEG, libtiff makes RGB, page by page.
  write(path, ome({.z = "2", .c = "3"}),
        numbered(2, {.samples = 3, .photometric = PHOTOMETRIC_YCBCR, .compression = COMPRESSION_JPEG}));
  const auto colours = open_region(path, {}, {.volumes = 3});
  std::vector<float> values(static_cast<std::size_t>(colours->info().row_bytes()) / sizeof(float));
  for (const int slice : {0, 1}) {
    colours->read(slice, 1, values.data());
    // Brightness 0, and chroma of 1 and 2, which is almost the least: a dark green.
    CHECK(values[0] == 0);
    CHECK(values[1] > 100);
    CHECK(values[2] == 0);
  }
  // Also if two pages are read by turns.
  write(
      path, ome({.c = "6", .y = "64"}),
      numbered(
          2,
          {.height = 64, .samples = 3, .rows = 16, .photometric = PHOTOMETRIC_YCBCR, .compression = COMPRESSION_JPEG}));
  const auto by_turns = read(path, {.channels = 6});
  for (std::size_t row = 0; row < 64; ++row)
    for (std::size_t c = 0; c < 6; ++c) CHECK((by_turns[row * 6 + c] > 100) == (c % 3 == 1));
}

TEST_CASE("lengths of OME-XML and of ImageJ") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  for (const auto& [attributes, spacing] : std::vector<std::pair<std::string, std::array<double, 3>>>{
           {"PhysicalSizeX='2' PhysicalSizeY='0.5' PhysicalSizeZ='1E1'", {0.002, 0.0005, 0.01}},
           {"PhysicalSizeX='2' PhysicalSizeXUnit='nm' PhysicalSizeY='2' PhysicalSizeYUnit='\xCE\xBCm'",
            {2e-6, 0.002, 0}},
           {"PhysicalSizeX='2' PhysicalSizeXUnit='&#181;m' PhysicalSizeZ='2' PhysicalSizeZUnit='m'", {0.002, 0, 2000}},
           {"PhysicalSizeX='2' PhysicalSizeXUnit='pixel' PhysicalSizeY='-1' PhysicalSizeZ='nan'", {}},
           {"PhysicalSizeX='1e999' PhysicalSizeY='' PhysicalSizeZ='2um'", {}}}) {
    CAPTURE(attributes);
    write(path, ome({.z = "2"}, "", attributes), numbered(2));
    const RegionInfo info = open_region(path, {}, {})->info();
    for (std::size_t axis = 0; axis < 3; ++axis) CHECK(info.spacing_mm[axis] == doctest::Approx(spacing[axis]));
    CHECK(info.volume);
    CHECK(info.size == Extent{2, 12, 20});
    CHECK(info.nifti_header.size() == 348);
    CHECK(info.directions == Directions{});
  }
  const std::string stack = "ImageJ=1.53t\nimages=4\nslices=4\n";
  const std::vector<Page> four = numbered(4);
  for (const auto& [text, z] : {std::pair{"unit=micron\nspacing=2.5\n", 0.0025},
                                {"spacing=-3\nunit=\\u00B5m\n", 0.003},
                                {"unit=mm\n", 1.0},
                                {"spacing=2\n", 0.0},
                                {"unit=pixel\nspacing=2\n", 0.0},
                                {"unit=nm\nspacing=much\n", 0.0}}) {
    CAPTURE(text);
    write(path, stack + text, four);
    const RegionInfo info = open_region(path, {}, {})->info();
    CHECK(info.size.rows == 4);
    CHECK(info.spacing_mm[0] == 0);  // without a resolution
    CHECK(info.spacing_mm[2] == doctest::Approx(z));
  }
  // Old stacks only count their images.
  write(path, "ImageJ=1.11a\nimages=4\n", four);
  CHECK(read(path) == std::vector<float>{0, 1, 2, 3});
  write(path, "ImageJ=1.53t\nimages=4\nchannels=2\nslices=3\n", four);
  CHECK(fault(path, Reason::corrupt_data) ==
        "in its description, ImageJ names 4 images, but 2 channels, 3 slices and 1 points in time");
  write(path, "ImageJ=1.53t\nimages=4\nslices=0\n", four);
  CHECK(fault(path, Reason::corrupt_data).find("number of slices is no whole number") != std::string::npos);
  write(path, stack, numbered(1));
  CHECK(fault(path, Reason::unsupported_format) ==
        "an ImageJ stack above 4 GB, which describes its first page only; save it as OME-TIFF");
  write(path, stack, numbered(3));
  CHECK(fault(path, Reason::corrupt_data) == "an ImageJ stack with 3 pages, but page 3 is one of its planes");
}

TEST_CASE("other TIFFs are their first page") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  for (const std::string& text :
       {std::string(), std::string("<PerkinElmer/>"), std::string("<a><OME/></a>"), std::string("about <OME"), ome({}),
        ome({.x = "2000"}), std::string("ImageJ=1.53t\nunit=mm\n")}) {
    CAPTURE(text);
    write(path, text, numbered(3));
    const auto region = open_region(path, {}, {});
    CHECK(region->info().size == Extent{12, 1, 20});
    CHECK_FALSE(region->info().volume);
  }
  write(path, ome({}), numbered(1, {.photometric = PHOTOMETRIC_PALETTE}));
  CHECK(open_region(path, {}, {}) == nullptr);
  write(path, ome({.t = "2"}), numbered(2, {.photometric = PHOTOMETRIC_PALETTE}));
  CHECK(fault(path, Reason::unsupported_format, {.volume = 1}).starts_with("page 1 has a palette"));
  write(path, ome({.z = "2"}), numbered(2, {.photometric = PHOTOMETRIC_PALETTE}));
  CHECK(fault(path, Reason::unsupported_format).starts_with("page 0: a TIFF with a palette"));
}

TEST_CASE("models that take something else") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  write(path, ome({.z = "2", .c = "2"}), numbered(4));
  CHECK(fault(path, Reason::unsupported_format) == "an OME-TIFF with 2 channels, but the model takes 1");
  CHECK(fault(path, Reason::unsupported_format, {.volumes = 3}) ==
        "an OME-TIFF with 2 channels, but the model takes 3");
  CHECK(fault(path, Reason::unsupported_format, {.volume = 1, .volumes = 2}) ==
        "this OME-TIFF has 1 point in time, so there is no point 1; they count from 0");
  CHECK(fault(path, Reason::unsupported_format, {.channels = 2}) ==
        "a volume, but the windows of the model are pictures");
  write(path, ome({.c = "2"}), numbered(2));
  CHECK(fault(path, Reason::unsupported_format, {.channels = 4}) ==
        "an OME-TIFF with 2 channels, but the model takes 4");
  CHECK(fault(path, Reason::unsupported_format, {.volumes = 2}) ==
        "a picture, but the windows of the model are volumes");
}

TEST_CASE("OME-XML that is hostile") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  const auto says = [&](const std::string& text, Reason reason, const std::string& expected) {
    CAPTURE(text.substr(0, 400));
    write(path, text, numbered(2));
    const std::string message = fault(path, reason, {.memory_bytes = 64 << 20});
    CAPTURE(message);
    CHECK(message.find(expected) != std::string::npos);
  };
  using enum Reason;
  const std::string whole = ome({.z = "2"});
  for (const std::size_t size : {whole.size() - 1, whole.size() / 2, std::size_t{90}})
    says(whole.substr(0, size), corrupt_data, "its OME-XML cannot be read at byte ");
  std::string deep = "<OME>";
  for (int i = 0; i < 300'000; ++i) deep += "<a>";
  says(deep, corrupt_data, "its OME-XML cannot be read at byte ");
  for (int i = 0; i < 300'000; ++i) deep += "</a>";
  says(deep + "</OME>", too_large, "more than gate.slab allows");
  deep = "<OME>";
  for (int i = 0; i < 200'000; ++i) deep += "<a>";
  for (int i = 0; i < 200'000; ++i) deep += "</a>";
  says(deep + "</OME>", corrupt_data, "its OME-XML has no Pixels");
  says("<OME>" + std::string(2 << 20, 'x') + "</OME>", too_large, "bytes, more than gate.slab allows");
  says("<!DOCTYPE a [<!ENTITY b 'bbbbbbbb'><!ENTITY c '&b;&b;&b;'>]><OME>&c;</OME>", corrupt_data, "no Pixels");
  for (const char* const number : {"0", "-1", "", "two", "2.0", "99999999999999999999", "2147483648", " 2"})
    says(ome({.z = number}), corrupt_data, "SizeZ in its OME-XML is no whole number from 1 to 2147483647");
  says(ome({.z = "2147483647"}), too_large, "an OME-TIFF of 2147483647 slices");
  says(ome({.z = "2147483647", .c = "2147483647", .t = "2147483647"}), too_large, "at most 1048560 planes are read");
  says(ome({.z = "65535", .t = "65535"}), too_large, "and 65535 points in time");
  says(ome({.z = "65535"}), corrupt_data, "an OME-TIFF with 2 pages, but page 65534 is one of its planes");
  for (const char* const order : {"XYZTT", "X", "ZCTXY"})
    says(ome({.z = "2", .order = order}), corrupt_data, "no DimensionOrder");
  says(ome({.z = "2", .x = "21"}), corrupt_data, "its OME-XML names 21x12 pixels, but page 0 has 20x12");
  says("<OME><Image><Pixels DimensionOrder='XYZCT' SizeY='3' SizeZ='1' SizeC='1' SizeT='1'/></Image></OME>",
       corrupt_data, "its OME-XML has no SizeX");
  for (const auto& [data, expected] :
       {std::pair{"<TiffData IFD='0'/>", "gives some of them no page"},
        {"<TiffData IFD='2147483647'/><TiffData IFD='1' FirstZ='1'/>", "names a page that no file has"},
        {"<TiffData IFD='2147483646'/><TiffData IFD='1' FirstZ='1'/>", "page 2147483646 is one of its planes"},
        {"<TiffData IFD='-1'/>", "IFD in its OME-XML is no whole number"},
        {"<TiffData IFD='0' FirstZ='2'/>", "names one that is none of them"},
        {"<TiffData IFD='0' FirstC='1'/>", "names one that is none of them"},
        {"<TiffData IFD='0' FirstT='2147483647'/>", "names one that is none of them"},
        {"<TiffData PlaneCount='3'/>", "names more, or one of them twice"},
        {"<TiffData PlaneCount='2147483647'/>", "names more, or one of them twice"},
        {"<TiffData/><TiffData/>", "names more, or one of them twice"}})
    says(ome({.z = "2"}, data), corrupt_data, expected);
  says(ome({.z = "2", .t = "2"}, "<TiffData IFD='0' PlaneCount='2'/><TiffData IFD='1' PlaneCount='2'/>"), corrupt_data,
       "names one of them twice");
}

/// Makes the last directory of a classic TIFF point to the first one.
void make_loop(const std::string& path, bool to_itself) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(file), {}};
  const auto number = [&](std::size_t at, std::size_t size) {
    std::uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, size);
    return value;
  };
  const std::uint32_t first = number(4, 4);
  std::uint32_t directory = first, link = 4;
  while (number(link, 4) != 0) {
    directory = number(link, 4);
    link = directory + 2 + 12 * number(directory, 2);
  }
  const std::uint32_t to = to_itself ? directory : first;
  file.seekp(link);
  file.write(reinterpret_cast<const char*>(&to), sizeof(to));
}

TEST_CASE("directories that form a loop end") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  for (const bool to_itself : {false, true}) {
    write(path, ome({.z = "1000"}), numbered(3));
    make_loop(path, to_itself);
    CHECK(fault(path, Reason::corrupt_data).starts_with("directory 3 of this TIFF cannot be read: "));
    // Planes before the loop are read.
    write(path, ome({.z = "3"}), numbered(3));
    make_loop(path, to_itself);
    CHECK(read(path) == std::vector<float>{0, 1, 2});
  }
}

TEST_CASE("pages that differ") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  for (const auto& [other, reason, says] :
       {std::tuple{Page{.width = 21}, Reason::corrupt_data, "page 2: it differs in size or type from page 0"},
        {Page{.bits = 16}, Reason::corrupt_data, "page 2: it differs in size or type from page 0"},
        {Page{.samples = 2}, Reason::unsupported_format, "page 2: a TIFF with 2 channels, but the model takes 1"},
        {Page{.tile = 16}, Reason::unsupported_format, "page 2: its tiles or strips are larger than those of page 0"},
        {Page{.rows = 2}, Reason::internal, "no error"}}) {
    auto pages = numbered(3, {.rows = 4});
    pages[2] = other;
    write(path, ome({.z = "3"}), pages);
    CHECK(fault(path, reason).starts_with(says));
    write(path, ome({.c = "3"}), pages);
    CHECK(fault(path, reason, {.channels = 3}).starts_with(says));
  }
}

TEST_CASE("memory of a stack is a page of each channel, however many slices there are") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  const Page page{.width = 1000, .height = 64, .tile = 16};
  write(path, ome({.z = "40", .c = "2", .x = "1000", .y = "64"}), numbered(80, page));
  constexpr std::int64_t tiles = 16 * (1000 + 16), line = 1000, places = 80 * 12;
  CHECK(open_region(path, {}, {.volumes = 2})->memory_bytes() == tiles + line + places);
  write(path, ome({.c = "4", .x = "1000", .y = "64"}), numbered(4, page));
  CHECK(open_region(path, {}, {.channels = 4})->memory_bytes() == 4 * tiles + line + 4 * 8);
  CHECK(fault(path, Reason::too_large, {.memory_bytes = 4 * tiles - 1, .channels = 4}).find("raise gate.slab") !=
        std::string::npos);
  write(path, ome({.z = "2", .x = "32768", .y = "12"}), numbered(2, {.width = 32768}));
  CHECK(fault(path, Reason::too_large).find("a NIfTI has at most 32767 along an axis") != std::string::npos);
}

TEST_CASE("a stack of 65,535 pages") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  write(path, ome({.t = "65535", .x = "1", .y = "1"}), numbered(65535, {.width = 1, .height = 1, .rows = 1}));
  CHECK(read(path, {.volume = 65534}) == std::vector<float>(3, 65534 % 256));
}

TEST_CASE("broken tiles of pages are holes of all channels") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  write(path, ome({.c = "3", .x = "80", .y = "48"}),
        numbered(3, {.width = 80, .height = 48, .tile = 16, .compression = COMPRESSION_ADOBE_DEFLATE}));
  for (const auto& [page, tile] : {std::pair{0, 1U}, {2, 2U}, {1, 4U}, {1, 12U}}) {
    TIFF* const tiff = TIFFOpen(path.c_str(), "r");
    TIFFSetDirectory(tiff, static_cast<tdir_t>(page));
    const std::uint64_t at = TIFFGetStrileOffset(tiff, tile);
    TIFFClose(tiff);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.write("xxxx", 4);
  }
  CHECK(fault(path, Reason::corrupt_data, {.channels = 3}).starts_with("page 0: tile 1 at column 16, row 0 "));
  const auto region = open_region(path, {}, {.channels = 3});
  std::vector<std::uint8_t> pixels(80 * 48 * 3, 9);
  std::vector<Hole> holes;
  region->read_with_holes(0, 48, pixels.data(), holes);
  CHECK(holes == std::vector<Hole>{{0, 16, 16, 48}, {0, 16, 64, 80}, {32, 48, 32, 48}});
  std::size_t wrong = 0;
  for (int y = 0; y < 48; ++y) {
    for (int x = 0; x < 80; ++x) {
      bool hole = false;
      for (const Hole& one : holes)
        hole |= y >= one.first_row && y < one.end_row && x >= one.first_column && x < one.end_column;
      for (int c = 0; c < 3; ++c)
        wrong += pixels[static_cast<std::size_t>((y * 80 + x) * 3 + c)] == (hole ? 0 : c) ? 0 : 1;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("cut and changed stacks fail or give values, and never end the process") {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/a.tif";
  std::mt19937 random(5);
  const std::string data = "<TiffData IFD='0' PlaneCount='3'/><TiffData IFD='3' FirstC='1' PlaneCount='3'/>";
  for (const auto& [text, options] :
       {std::pair{ome({.z = "3", .c = "2"}, data, "PhysicalSizeX='2'"), RegionOptions{1 << 20, 0, 2}},
        {ome({.c = "3", .t = "2"}), RegionOptions{.memory_bytes = 1 << 20, .volume = 1, .channels = 3}},
        {std::string("ImageJ=1.53t\nimages=6\nslices=3\nchannels=2\nunit=mm\n"), RegionOptions{1 << 20, 0, 2}}}) {
    write(path, text, numbered(6, {.tile = 16, .compression = COMPRESSION_LZW}));
    CHECK_FALSE(read(path, options).empty());
    std::ifstream in(path, std::ios::binary);
    const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
    const auto words = std::search(bytes.begin(), bytes.end(), text.begin(), text.end()) - bytes.begin();
    for (int trial = 0; trial < 300; ++trial) {
      std::vector<char> changed = bytes;
      if (trial % 6 == 0) changed.resize(random() % changed.size());
      // Half of the changes hit the description.
      const auto from = trial % 2 == 0 ? static_cast<std::size_t>(words) : 0;
      const std::size_t range = trial % 2 == 0 ? text.size() : changed.size();
      for (int i = 0; i < 3; ++i) {
        const std::size_t at = from + random() % range;
        if (at < changed.size()) changed[at] = static_cast<char>(random() % (trial % 4 == 0 ? 256 : 80));
      }
      std::ofstream(path, std::ios::binary).write(changed.data(), static_cast<std::streamsize>(changed.size()));
      try {
        if (!is_read_in_parts(path)) continue;
        const auto region = open_region(path, {}, options);
        if (region == nullptr || region->info().size.rows > 10'000) continue;
        std::vector<std::uint8_t> row(static_cast<std::size_t>(region->info().row_bytes()));
        std::vector<Hole> holes;
        for (int y = 0; y < region->info().size.rows; ++y) region->read_with_holes(y, 1, row.data(), holes);
      } catch (const PictureError& error) {
        CHECK(std::strlen(error.what()) > 10);
      }
    }
  }
}

}  // namespace
}  // namespace millrace
