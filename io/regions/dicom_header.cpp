#include "io/regions/dicom_header.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <map>
#include <string_view>
#include <vector>

#include "io/files/read_file.hpp"
#include "io/files/source_names.hpp"

// GDCM could read headers too. But it calls itself for each data set inside another one, so a hostile file of 10 MB
// ends the program.

namespace millrace {
namespace {

struct Tag {
  std::uint32_t number;  // group, then element
  const char* name;
};
constexpr Tag transfer_syntax{0x00020010, "TransferSyntaxUID"}, slice_thickness{0x00180050, "SliceThickness"},
    between_slices{0x00180088, "SpacingBetweenSlices"}, series_uid{0x0020000E, "SeriesInstanceUID"},
    image_position{0x00200032, "ImagePositionPatient"}, image_orientation{0x00200037, "ImageOrientationPatient"},
    samples{0x00280002, "SamplesPerPixel"}, photometric{0x00280004, "PhotometricInterpretation"},
    frames{0x00280008, "NumberOfFrames"}, rows{0x00280010, "Rows"}, columns{0x00280011, "Columns"},
    pixel_spacing{0x00280030, "PixelSpacing"}, bits_allocated{0x00280100, "BitsAllocated"},
    bits_stored{0x00280101, "BitsStored"}, high_bit{0x00280102, "HighBit"},
    representation{0x00280103, "PixelRepresentation"}, intercept{0x00281052, "RescaleIntercept"},
    slope{0x00281053, "RescaleSlope"}, value_table{0x00283000, "ModalityLUTSequence"};
constexpr std::array wanted{transfer_syntax,   slice_thickness, between_slices, series_uid,  image_position,
                            image_orientation, samples,         photometric,    frames,      rows,
                            columns,           pixel_spacing,   bits_allocated, bits_stored, high_bit,
                            representation,    intercept,       slope};
constexpr std::uint32_t pixel_data = 0x7FE00010, item_begin = 0xFFFEE000, item_end = 0xFFFEE00D,
                        sequence_end = 0xFFFEE0DD;
constexpr std::uint32_t unknown_length = 0xFFFFFFFF;
constexpr std::int64_t word_begin = 128;  // of the word DICM, behind the preamble
constexpr std::size_t max_value = 1024;   // bytes of a value that is read
constexpr int max_elements = 1'000'000;   // limits the time that a file can take

std::string text_of(std::uint32_t tag) {
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "(%04X,%04X)", tag >> 16U, tag & 0xFFFFU);
  return text.data();
}

[[noreturn]] void corrupt(const std::string& what) { throw PictureError(Reason::corrupt_data, what); }
[[noreturn]] void unsupported(const std::string& what) { throw PictureError(Reason::unsupported_format, what); }

/// Reads a file from its beginning to its end in blocks. Numbers are in little-endian order.
class Reading {
 public:
  Reading(int descriptor, std::int64_t size) : descriptor_(descriptor), size_(size) {}
  std::int64_t at() const { return at_; }
  void skip(std::int64_t bytes) {
    if (bytes > size_ - at_) throw PictureError(Reason::truncated, "its header ends early");
    at_ += bytes;
  }
  std::string read(std::size_t bytes) {
    std::string value(bytes, '\0');
    const std::int64_t begin = at_;
    skip(static_cast<std::int64_t>(bytes));
    if (begin < block_begin_ || at_ > block_begin_ + static_cast<std::int64_t>(block_.size())) {
      block_.resize(static_cast<std::size_t>(std::min<std::int64_t>(size_ - begin, 4096)));
      read_bytes_at(descriptor_, begin, block_.size(), block_.data());
      block_begin_ = begin;
    }
    std::memcpy(value.data(), block_.data() + (begin - block_begin_), bytes);
    return value;
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, read(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::uint16_t next_group() {
    const auto group = number<std::uint16_t>();
    at_ -= 2;
    return group;
  }

 private:
  const int descriptor_;
  const std::int64_t size_;
  std::int64_t at_ = 0, block_begin_ = 0;
  std::string block_;
};

struct Element {
  std::uint32_t tag = 0;
  std::uint32_t length = 0;
  bool is_unknown = false;  // of an unknown type: nested elements then have none either
};

Element next_element(Reading& file, bool with_types) {
  Element element;
  const auto group = file.number<std::uint16_t>();
  element.tag = std::uint32_t{group} << 16U | file.number<std::uint16_t>();
  if (!with_types || group == item_begin >> 16U) {
    element.length = file.number<std::uint32_t>();
    return element;
  }
  const std::string type = file.read(2);
  static constexpr std::array long_types{"OB", "OD", "OF", "OL", "OV", "OW", "SQ", "SV", "UC", "UN", "UR", "UT", "UV"};
  element.is_unknown = type == "UN";
  if (std::ranges::any_of(type, [](char c) { return c < 'A' || c > 'Z'; }))
    corrupt("its element " + text_of(element.tag) + " has no type of value");
  if (std::ranges::find(long_types, type) == long_types.end()) {
    element.length = file.number<std::uint16_t>();
  } else {
    file.skip(2);
    element.length = file.number<std::uint32_t>();
  }
  return element;
}

struct Syntax {
  const char* uid;
  DicomCoding coding;
};
constexpr std::array syntaxes{
    Syntax{"1.2.840.10008.1.2", DicomCoding::raw},          Syntax{"1.2.840.10008.1.2.1", DicomCoding::raw},
    Syntax{"1.2.840.10008.1.2.5", DicomCoding::rle},        Syntax{"1.2.840.10008.1.2.4.50", DicomCoding::jpeg},
    Syntax{"1.2.840.10008.1.2.4.51", DicomCoding::jpeg},    Syntax{"1.2.840.10008.1.2.4.57", DicomCoding::jpeg},
    Syntax{"1.2.840.10008.1.2.4.70", DicomCoding::jpeg},    Syntax{"1.2.840.10008.1.2.4.80", DicomCoding::jpeg_ls},
    Syntax{"1.2.840.10008.1.2.4.81", DicomCoding::jpeg_ls}, Syntax{"1.2.840.10008.1.2.4.90", DicomCoding::jpeg2000},
    Syntax{"1.2.840.10008.1.2.4.91", DicomCoding::jpeg2000}};

/// The values of the wanted elements.
class Values {
 public:
  void put(std::uint32_t tag, std::string value) {
    // Texts are filled up with spaces, and identifiers with a zero.
    while (!value.empty() && (value.back() == ' ' || value.back() == '\0') && is_text(tag)) value.pop_back();
    values_.emplace(tag, std::move(value));
  }
  bool has(const Tag& tag) const { return values_.contains(tag.number) && !values_.at(tag.number).empty(); }

  const std::string& text(const Tag& tag) const {
    if (!has(tag))
      unsupported(std::string("it has no ") + tag.name + " " + text_of(tag.number) + ", so it is no slice of a volume");
    return values_.at(tag.number);
  }

  int number(const Tag& tag) const {
    const std::string& value = text(tag);
    if (value.size() != 2) corrupt(bad(tag));
    std::uint16_t number = 0;
    std::memcpy(&number, value.data(), 2);
    return number;
  }

  /// Numbers as text, separated by backslashes.
  template <std::size_t count>
  std::array<double, count> decimals(const Tag& tag) const {
    std::array<double, count> numbers{};
    std::string_view rest = text(tag);
    for (double& number : numbers) {
      const std::size_t begin = rest.find_first_not_of(" +");
      rest.remove_prefix(std::min(begin, rest.size()));
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number);
      if (error != std::errc() || !std::isfinite(number)) corrupt(bad(tag));
      rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
      rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
      const bool last = &number == &numbers.back();
      if (last != rest.empty() || (!last && rest.front() != '\\')) corrupt(bad(tag));
      if (!last) rest.remove_prefix(1);
    }
    return numbers;
  }

  static std::string bad(const Tag& tag) {
    return std::string("its ") + tag.name + " " + text_of(tag.number) + " cannot be used";
  }

 private:
  static bool is_text(std::uint32_t tag) {
    return std::ranges::none_of(
        std::array{samples, rows, columns, bits_allocated, bits_stored, high_bit, representation},
        [&](const Tag& number) { return number.number == tag; });
  }
  std::map<std::uint32_t, std::string> values_;
};

struct Elements {
  Values values;
  DicomCoding coding = DicomCoding::raw;
  std::uint32_t pixels_length = 0;
  std::int64_t pixels_begin = 0;
};

// Data sets can contain data sets. Those of known length are passed over; of the others, `depth` counts the open ones.
Elements read_elements(Reading& file) {
  Elements found;
  file.skip(word_begin);
  if (file.read(4) != "DICM") throw PictureError(Reason::not_an_image, "no DICOM file");
  bool in_meta = true, with_types = true;  // the meta elements always have types
  int depth = 0, untyped_depth = std::numeric_limits<int>::max();
  for (int count = 0; count < max_elements; ++count) {
    if (in_meta && file.next_group() != 2) {
      in_meta = false;
      const std::string& uid = found.values.text(transfer_syntax);
      const auto* known = std::ranges::find(syntaxes, std::string_view(uid), &Syntax::uid);
      if (known == syntaxes.end())
        unsupported("its transfer syntax is " + display_name(uid) +
                    "; uncompressed files, RLE, JPEG, JPEG-LS and JPEG 2000 are read");
      found.coding = known->coding;
      with_types = known != syntaxes.begin();
    }
    const Element element = next_element(file, with_types && depth < untyped_depth);
    if (element.tag == pixel_data && depth == 0) {
      found.pixels_length = element.length;
      found.pixels_begin = file.at();
      return found;
    }
    if (element.tag == item_end || element.tag == sequence_end) {
      depth = std::max(depth - 1, 0);
      if (depth < untyped_depth) untyped_depth = std::numeric_limits<int>::max();
    } else if (element.tag == value_table.number && depth == 0) {
      unsupported("its values follow from a table (ModalityLUTSequence)");
    } else if (element.length == unknown_length) {
      ++depth;
      if (element.is_unknown) untyped_depth = std::min(untyped_depth, depth);
    } else if (depth == 0 && std::ranges::find(wanted, element.tag, &Tag::number) != wanted.end()) {
      if (element.length > max_value) corrupt("its element " + text_of(element.tag) + " has too many bytes");
      found.values.put(element.tag, file.read(element.length));
    } else {
      file.skip(element.length);
    }
  }
  corrupt("it has no pixels among its first million elements");
}

void check_orientation(const std::array<double, 6>& to) {
  constexpr double error = 1e-3;
  const auto dot = [&](std::size_t a, std::size_t b) {
    return to[a] * to[b] + to[a + 1] * to[b + 1] + to[a + 2] * to[b + 2];
  };
  if (std::abs(dot(0, 0) - 1) > error || std::abs(dot(3, 3) - 1) > error || std::abs(dot(0, 3)) > error)
    corrupt(Values::bad(image_orientation) + ": its directions are not two of length 1 at a right angle");
}

}  // namespace

DicomHeader read_dicom_header(int descriptor, std::int64_t file_bytes) {
  Reading file(descriptor, file_bytes);
  const Elements found = read_elements(file);
  const Values& values = found.values;

  DicomHeader header;
  header.coding = found.coding;
  header.pixels_begin = found.pixels_begin;
  header.rows = values.number(rows);
  header.columns = values.number(columns);
  if (header.rows == 0 || header.columns == 0) corrupt("it has no rows or no columns");
  if (values.has(frames)) {
    const double count = values.decimals<1>(frames)[0];
    if (count != 1) unsupported("it has several frames; a series of files with one slice each is read");
  }
  const std::string& colours = values.text(photometric);
  if (values.number(samples) != 1 || (colours != "MONOCHROME1" && colours != "MONOCHROME2"))
    unsupported("its pixels are in colour (" + display_name(colours) + "); grey ones are read");

  const int allocated = values.number(bits_allocated);
  header.bytes = allocated / 8;
  header.bits_stored = values.number(bits_stored);
  header.high_bit = values.has(high_bit) ? values.number(high_bit) : header.bits_stored - 1;
  header.is_signed = values.number(representation) != 0;
  if (allocated != 8 && allocated != 16 && allocated != 32)
    unsupported("its values take " + std::to_string(allocated) + " bits; 8, 16 and 32 are read");
  if (header.bits_stored < 1 || header.high_bit < header.bits_stored - 1 || header.high_bit >= allocated)
    corrupt("its BitsAllocated, BitsStored and HighBit contradict each other");

  header.series = values.text(series_uid);
  header.position = values.decimals<3>(image_position);
  header.orientation = values.decimals<6>(image_orientation);
  check_orientation(header.orientation);
  header.spacing = values.decimals<2>(pixel_spacing);
  if (!(header.spacing[0] > 0 && header.spacing[1] > 0)) corrupt(Values::bad(pixel_spacing));
  for (const Tag& tag : {slice_thickness, between_slices}) {
    if (header.thickness <= 0 && values.has(tag)) header.thickness = std::abs(values.decimals<1>(tag)[0]);
  }
  if (values.has(slope)) header.slope = values.decimals<1>(slope)[0];
  if (values.has(intercept)) header.intercept = values.decimals<1>(intercept)[0];
  if (header.slope == 0) corrupt(Values::bad(slope));

  if ((found.pixels_length == unknown_length) != (header.coding != DicomCoding::raw))
    corrupt("its transfer syntax and the length of its pixels contradict each other");
  const std::int64_t raw = header.values() * header.bytes;
  if (header.coding == DicomCoding::raw && found.pixels_length < raw)
    corrupt("its pixels have " + std::to_string(found.pixels_length) + " bytes, but its rows and columns need " +
            std::to_string(raw));
  if (header.coding == DicomCoding::raw && raw > file_bytes - header.pixels_begin)
    throw PictureError(Reason::truncated, "it ends inside its pixels");
  return header;
}

}  // namespace millrace
