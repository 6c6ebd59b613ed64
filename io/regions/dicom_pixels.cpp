#include "io/regions/dicom_pixels.hpp"

#include <gdcmDataElement.h>
#include <gdcmFragment.h>
#include <gdcmJPEG2000Codec.h>
#include <gdcmJPEGCodec.h>
#include <gdcmJPEGLSCodec.h>
#include <gdcmSequenceOfFragments.h>
#include <gdcmTrace.h>

#include <array>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "io/files/read_file.hpp"

namespace millrace {
namespace {

using Bytes = std::span<const std::uint8_t>;

[[noreturn]] void corrupt(const std::string& what) { throw PictureError(Reason::corrupt_data, what); }

/// The number of `count` bytes at `at`, the first one is the highest.
std::uint32_t big_endian(Bytes bytes, std::size_t at, std::size_t count) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < count; ++i) number = number << 8U | bytes[at + i];
  return number;
}

/// The compressed data, which lie in parts behind a table of places.
std::vector<std::uint8_t> read_parts(int descriptor, std::int64_t file_bytes, std::int64_t at) {
  std::vector<std::uint8_t> data;
  for (bool is_table = true;; is_table = false) {
    std::array<std::uint16_t, 4> head{};  // group and element of the tag, then the length in two halves
    if (file_bytes - at < 8) throw PictureError(Reason::truncated, "it ends inside its pixels");
    read_bytes_at(descriptor, at, sizeof(head), head.data());
    at += 8;
    if (head[0] == 0xFFFE && head[1] == 0xE0DD) return data;
    if (head[0] != 0xFFFE || head[1] != 0xE000) corrupt("its pixels are not in parts as compressed ones must be");
    const std::int64_t length = head[2] | std::int64_t{head[3]} << 16U;
    if (length > file_bytes - at) throw PictureError(Reason::truncated, "it ends inside its pixels");
    if (!is_table) {
      const std::size_t before = data.size();
      data.resize(before + static_cast<std::size_t>(length));
      read_bytes_at(descriptor, at, static_cast<std::size_t>(length), data.data() + before);
    }
    at += length;
  }
}

/// One byte of each value, the highest first. GDCM reads behind the end of such data if they are cut.
void unpack_rle(Bytes data, const DicomHeader& header, std::vector<std::uint8_t>& to) {
  const auto step = static_cast<std::size_t>(header.bytes), values = to.size() / step;
  std::array<std::uint32_t, 16> table{};  // the number of parts, then their places
  if (data.size() < sizeof(table)) throw PictureError(Reason::truncated, "its RLE data end early");
  std::memcpy(table.data(), data.data(), sizeof(table));
  if (table[0] != step)
    corrupt("its RLE data have " + std::to_string(table[0]) + " parts instead of " + std::to_string(step));
  for (std::size_t part = 0; part < step; ++part) {
    std::size_t at = table[part + 1], done = 0;
    std::uint8_t* const first = to.data() + (step - 1 - part);
    while (done < values) {
      if (at + 1 >= data.size()) throw PictureError(Reason::truncated, "its RLE data end early");
      const std::uint8_t code = data[at++];
      if (code == 128) continue;
      const bool repeats = code > 128;
      const std::size_t count = repeats ? 257U - code : code + 1U;
      if (count > values - done || (!repeats && count > data.size() - at))
        corrupt("its RLE data contradict themselves");
      for (std::size_t i = 0; i < count; ++i) first[(done + i) * step] = data[repeats ? at : at + i];
      at += repeats ? 1 : count;
      done += count;
    }
  }
}

/// What compressed data say about themselves.
struct Coded {
  std::uint32_t rows = 0, columns = 0, bits = 0, channels = 0;
};

/// Takes comments and the like out of `data`: GDCM ends the program when it would only warn of them.
std::optional<Coded> coded_as_jpeg(std::vector<std::uint8_t>& data, bool is_jpeg_ls) {
  std::optional<Coded> coded;
  std::vector<std::uint8_t> needed{0xFF, 0xD8};
  if (data.size() < 2 || data[0] != 0xFF || data[1] != 0xD8) return {};
  for (std::size_t at = 2; at + 4 <= data.size();) {
    const std::uint32_t marker = big_endian(data, at, 2);
    const std::size_t bytes = 2 + big_endian(data, at + 2, 2);
    if (marker < 0xFF02 || bytes < 4 || bytes > data.size() - at) return {};
    const auto begin = data.begin() + static_cast<std::ptrdiff_t>(at);
    if (marker == 0xFFDA) {
      needed.insert(needed.end(), begin, data.end());
      data = std::move(needed);
      return coded;
    }
    // Baseline, extended and lossless; others have no transfer syntax that is read.
    if (is_jpeg_ls ? marker == 0xFFF7 : marker == 0xFFC0 || marker == 0xFFC1 || marker == 0xFFC3) {
      if (bytes < 10 || coded) return {};
      coded = Coded{big_endian(data, at + 5, 2), big_endian(data, at + 7, 2), data[at + 4], data[at + 9]};
    } else if (marker != 0xFFC4 && marker != 0xFFDB && marker != 0xFFDD && marker != 0xFFF8) {
      at += bytes;
      continue;
    }
    needed.insert(needed.end(), begin, begin + static_cast<std::ptrdiff_t>(bytes));
    at += bytes;
  }
  return {};
}

std::optional<Coded> coded_as_jpeg2000(Bytes data) {
  if (data.size() < 45 || big_endian(data, 0, 4) != 0xFF4FFF51) return {};
  const bool is_whole = big_endian(data, 16, 4) == 0 && big_endian(data, 20, 4) == 0 && data[43] == 1 && data[44] == 1;
  if (!is_whole) return {};
  return Coded{big_endian(data, 12, 4), big_endian(data, 8, 4), (data[42] & 0x7FU) + 1, big_endian(data, 40, 2)};
}

/// GDCM believes what compressed data say. So this compares them with the header first.
int checked_bits(std::vector<std::uint8_t>& data, const DicomHeader& header) {
  while (!data.empty() && data.back() == 0) data.pop_back();  // fills up the last part
  if (data.size() < 2 || data.back() != 0xD9 || data[data.size() - 2] != 0xFF)
    throw PictureError(Reason::truncated, "its compressed pixels end early");
  const auto coded = header.coding == DicomCoding::jpeg2000
                         ? coded_as_jpeg2000(data)
                         : coded_as_jpeg(data, header.coding == DicomCoding::jpeg_ls);
  if (!coded) corrupt("its compressed pixels begin with no header that can be used");
  const int bytes = coded->bits <= 8 ? 1 : coded->bits <= 16 ? 2 : 4;
  if (coded->rows != static_cast<std::uint32_t>(header.rows) ||
      coded->columns != static_cast<std::uint32_t>(header.columns) || coded->channels != 1 || coded->bits == 0 ||
      bytes != header.bytes)
    corrupt("its header and its compressed pixels contradict each other");
  if (coded->bits < 8 || coded->bits > 16)  // GDCM ends the program for less than 8
    throw PictureError(Reason::unsupported_format,
                       "its compressed values have " + std::to_string(coded->bits) + " bits; 8 to 16 are read");
  return static_cast<int>(coded->bits);
}

void decode(gdcm::ImageCodec& codec, Bytes data, int bits, const DicomHeader& header, std::vector<std::uint8_t>& to) {
  // Its messages would go to stderr, between ours.
  static const bool is_quiet = [] {
    gdcm::Trace::DebugOff();
    gdcm::Trace::WarningOff();
    gdcm::Trace::ErrorOff();
    return true;
  }();
  (void)is_quiet;
  const std::array<unsigned, 3> sides{static_cast<unsigned>(header.columns), static_cast<unsigned>(header.rows), 1};
  const auto short_of = [](int value) { return static_cast<unsigned short>(value); };
  bool is_done = false;
  gdcm::DataElement decoded;
  try {
    codec.SetNumberOfDimensions(2);
    codec.SetDimensions(sides.data());
    codec.SetPhotometricInterpretation(gdcm::PhotometricInterpretation::MONOCHROME2);
    codec.SetPixelFormat(
        gdcm::PixelFormat(1, short_of(header.bytes * 8), short_of(bits), short_of(bits - 1), header.is_signed ? 1 : 0));
    gdcm::Fragment part;
    part.SetByteValue(reinterpret_cast<const char*>(data.data()), gdcm::VL(static_cast<std::uint32_t>(data.size())));
    const gdcm::SmartPointer<gdcm::SequenceOfFragments> parts = new gdcm::SequenceOfFragments;
    parts->AddFragment(part);
    gdcm::DataElement coded(gdcm::Tag(0x7FE0, 0x0010));
    coded.SetValue(*parts);
    is_done = codec.Decode(coded, decoded);
  } catch (const std::bad_alloc&) {
    throw PictureError(Reason::oom_host, "no host memory for its pixels");
  } catch (const std::exception&) {  // of GDCM, whose words help nobody
  }
  const gdcm::ByteValue* const values = is_done ? decoded.GetByteValue() : nullptr;
  if (values == nullptr || std::size_t{values->GetLength()} < to.size())
    corrupt("its compressed pixels cannot be decoded");
  std::memcpy(to.data(), values->GetPointer(), to.size());
}

}  // namespace

void read_dicom_pixels(int descriptor, std::int64_t file_bytes, const DicomHeader& header,
                       std::vector<std::uint8_t>& to) {
  to.resize(static_cast<std::size_t>(header.values() * header.bytes));
  if (header.coding == DicomCoding::raw) return read_bytes_at(descriptor, header.pixels_begin, to.size(), to.data());
  std::vector<std::uint8_t> data = read_parts(descriptor, file_bytes, header.pixels_begin);
  if (header.coding == DicomCoding::rle) return unpack_rle(data, header, to);
  const int bits = checked_bits(data, header);
  gdcm::JPEGCodec jpeg;
  gdcm::JPEGLSCodec jpeg_ls;
  gdcm::JPEG2000Codec jpeg2000;
  gdcm::ImageCodec& codec = header.coding == DicomCoding::jpeg      ? static_cast<gdcm::ImageCodec&>(jpeg)
                            : header.coding == DicomCoding::jpeg_ls ? static_cast<gdcm::ImageCodec&>(jpeg_ls)
                                                                    : jpeg2000;
  decode(codec, data, bits, header, to);
}

}  // namespace millrace
