#include "io/decode/decode_headers.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>
#include <string_view>

#include "io/decode/decode_bytes.hpp"
#include "io/decode/exif.hpp"

namespace millrace {
namespace {

using namespace std::string_view_literals;

[[noreturn]] void unsupported(const std::string& detail) { throw PictureError(Reason::unsupported_format, detail); }
[[noreturn]] void truncated(const std::string& detail) { throw PictureError(Reason::truncated, detail); }
[[noreturn]] void corrupt(const std::string& detail) { throw PictureError(Reason::corrupt_data, detail); }

/// A number of the header. Throws `truncated` if the file ends before it.
std::uint32_t need(Bytes bytes, std::uint64_t offset, int size, bool big_endian, const char* format) {
  const auto value = number(bytes, offset, size, big_endian);
  if (!value) truncated(std::string("the ") + format + " file ends inside its header");
  return *value;
}

/// A side that fits into int. plan_raster() refuses such lengths as too_large anyway.
int to_side(std::uint64_t value) {
  return static_cast<int>(std::min<std::uint64_t>(value, std::numeric_limits<int>::max()));
}

/// Bytes 10 to 13 are the position of the pixels, 14 to 17 the length of the header that follows.
CodecHeader read_bmp(Bytes bytes) {
  const std::uint32_t data = need(bytes, 10, 4, false, "BMP"), header = need(bytes, 14, 4, false, "BMP");
  CodecHeader result;
  std::uint64_t depth = 0, compression = 0;
  // The oldest header has sides of 16 bits. All later ones begin like the header of 40 bytes.
  if (header == 12) {
    result.size = {to_side(need(bytes, 18, 2, false, "BMP")), to_side(need(bytes, 20, 2, false, "BMP"))};
    depth = need(bytes, 24, 2, false, "BMP");
  } else if (header >= 40) {
    // A negative height means that the rows begin at the top.
    const std::int64_t height = static_cast<std::int32_t>(need(bytes, 22, 4, false, "BMP"));
    result.size = {to_side(need(bytes, 18, 4, false, "BMP")),
                   to_side(static_cast<std::uint64_t>(height < 0 ? -height : height))};
    depth = need(bytes, 28, 2, false, "BMP");
    compression = need(bytes, 30, 4, false, "BMP");
  } else {
    unsupported("a BMP with a header of " + std::to_string(header) + " bytes");
  }
  if (compression == 4 || compression == 5) unsupported("a BMP that wraps a JPEG or a PNG");
  // Only uncompressed pixels have a length that the header tells. Rows are padded to 4 bytes.
  if (compression == 0 || compression == 3) {
    const std::uint64_t stride = (static_cast<std::uint64_t>(result.size.width) * depth + 31) / 32 * 4;
    result.data_end = data + stride * static_cast<std::uint64_t>(result.size.height);
  }
  return result;
}

/// The payload of the first chunk with that name in a WebP file; nothing if none exists.
std::optional<Bytes> find_chunk(Bytes webp, std::string_view name) {
  std::uint64_t at = 12;
  while (const auto length = number(webp, at + 4, 4, false)) {
    if (has(webp, at, name)) return slice(webp, at + 8, *length);
    // Chunks are padded to an even length.
    at += std::uint64_t{8} + *length + (*length & 1);
  }
  return std::nullopt;
}

/// The chunks of an animation's first frame. That frame must cover the canvas, as nearly all do.
Bytes webp_first_frame(Bytes bytes, FileSize canvas) {
  // x / 2, y / 2, width - 1, height - 1 in 24 bits each, then 4 bytes of duration and flags.
  constexpr std::uint64_t frame_header_bytes = 16;
  const auto frame = find_chunk(bytes, "ANMF");
  if (!frame) corrupt("an animated WebP without frames");
  const auto field = [&](std::uint64_t at) { return to_side(need(*frame, at, 3, false, "WebP")); };
  if (field(0) != 0 || field(3) != 0 || field(6) + 1 != canvas.width || field(9) + 1 != canvas.height) {
    unsupported("an animated WebP whose first frame does not cover the picture");
  }
  return slice(*frame, frame_header_bytes);
}

CodecHeader read_webp(Bytes bytes) {
  CodecHeader result;
  result.data_end = std::uint64_t{8} + need(bytes, 4, 4, false, "WebP");
  // VP8X: an extended file, with sides of 24 bits less 1. VP8L: lossless, with sides of 14 bits less 1.
  // VP8: lossy, with sides of 14 bits.
  if (has(bytes, 12, "VP8X")) {
    const std::uint32_t flags = need(bytes, 20, 1, false, "WebP");
    result.size = {to_side(need(bytes, 24, 3, false, "WebP") + 1), to_side(need(bytes, 27, 3, false, "WebP") + 1)};
    if ((flags & 0x02) != 0) {
      result.first_frame = webp_first_frame(bytes, result.size);
      result.warning = "the WebP is animated: its first frame was taken";
    }
    if (const auto exif = find_chunk(bytes, "EXIF")) {  // some writers keep the prefix it has in JPEG
      result.orientation = exif_orientation(has(*exif, 0, "Exif\0\0"sv) ? slice(*exif, 6) : *exif);
    }
  } else if (has(bytes, 12, "VP8L")) {
    const std::uint32_t bits = need(bytes, 21, 4, false, "WebP");
    result.size = {to_side((bits & 0x3FFF) + 1), to_side((bits >> 14 & 0x3FFF) + 1)};
  } else if (has(bytes, 12, "VP8 ")) {
    result.size = {to_side(need(bytes, 26, 2, false, "WebP") & 0x3FFF),
                   to_side(need(bytes, 28, 2, false, "WebP") & 0x3FFF)};
  } else {
    unsupported("a WebP of an unknown kind");
  }
  return result;
}

/// One field of a TIFF directory.
struct TiffField {
  std::uint32_t type = 0, count = 0;
  std::uint64_t values = 0;  // their position
};

/// The first directory of a TIFF file.
class TiffDirectory {
 public:
  TiffDirectory(Bytes bytes, bool big_endian)
      : bytes_(bytes), big_endian_(big_endian), at_(need(bytes, 4, 4, big_endian, "TIFF")) {
    count_ = need(bytes, at_, 2, big_endian, "TIFF");
  }

  std::optional<TiffField> find(std::uint32_t tag) const {
    for (std::uint32_t i = 0; i < count_; ++i) {
      const std::uint64_t entry = at_ + 2 + std::uint64_t{12} * i;
      if (need(bytes_, entry, 2, big_endian_, "TIFF") != tag) continue;
      TiffField field{need(bytes_, entry + 2, 2, big_endian_, "TIFF"), need(bytes_, entry + 4, 4, big_endian_, "TIFF"),
                      entry + 8};
      // Values of up to 4 bytes are in the entry itself. For others, the entry has their position.
      if (std::uint64_t{field.count} * static_cast<std::uint64_t>(value_bytes(field)) > 4)
        field.values = need(bytes_, entry + 8, 4, big_endian_, "TIFF");
      return field;
    }
    return std::nullopt;
  }

  std::uint32_t value(const TiffField& field, std::uint32_t index) const {
    const int size = value_bytes(field);
    return need(bytes_, field.values + std::uint64_t{index} * static_cast<std::uint64_t>(size), size, big_endian_,
                "TIFF");
  }

  std::uint32_t first(std::uint32_t tag, std::uint32_t otherwise) const {
    const auto field = find(tag);
    return field && field->count > 0 ? value(*field, 0) : otherwise;
  }

  std::uint32_t next() const {
    return number(bytes_, at_ + 2 + std::uint64_t{12} * count_, 4, big_endian_).value_or(0);
  }

 private:
  /// 3 is SHORT, 4 is LONG. The tags that we read have no wider types.
  static int value_bytes(const TiffField& field) { return field.type == 3 ? 2 : field.type == 4 ? 4 : 1; }

  Bytes bytes_;
  bool big_endian_;
  std::uint64_t at_;
  std::uint32_t count_;
};

/// The end of the last strip or tile. We check it because libtiff fills in missing data silently.
std::uint64_t tiff_data_end(const TiffDirectory& directory, std::uint32_t offsets_tag, std::uint32_t counts_tag) {
  const auto offsets = directory.find(offsets_tag), counts = directory.find(counts_tag);
  if (!offsets || !counts || offsets->count != counts->count) corrupt("the TIFF does not say where its data are");
  std::uint64_t end = 0;
  for (std::uint32_t i = 0; i < offsets->count; ++i) {
    end = std::max(end, std::uint64_t{directory.value(*offsets, i)} + directory.value(*counts, i));
  }
  return end;
}

CodecHeader read_tiff(Bytes bytes) {
  enum Tag : std::uint32_t {
    width = 256,
    height = 257,
    bits = 258,
    compression = 259,
    strip_offsets = 273,
    orientation = 274,
    samples = 277,
    strip_counts = 279,
    tile_width = 322,
    tile_height = 323,
    tile_offsets = 324,
    tile_counts = 325,
    sample_format = 339
  };
  CodecHeader result;
  result.big_endian = has(bytes, 0, "MM");
  if (number(bytes, 2, 2, result.big_endian) == 43U) unsupported("a BigTIFF");
  const TiffDirectory directory(bytes, result.big_endian);
  result.size = {to_side(directory.first(width, 0)), to_side(directory.first(height, 0))};
  const std::uint32_t sample_bits = directory.first(bits, 1), sample_count = directory.first(samples, 1);
  if (directory.first(sample_format, 1) != 1) unsupported("a TIFF of signed or floating-point samples");
  if (sample_bits > 16) unsupported("a TIFF of " + std::to_string(sample_bits) + " bits a sample");
  if (sample_count > 4) unsupported("a TIFF of " + std::to_string(sample_count) + " samples a pixel");
  result.bytes_per_pixel = sample_bits > 8 ? 8 : 4;
  const bool tiled = directory.find(tile_width).has_value();
  // The codec holds whole tiles, which may be larger than the picture. The minimum prevents an overflow.
  if (tiled) {
    const std::uint64_t area = std::uint64_t{directory.first(tile_width, 0)} * directory.first(tile_height, 0);
    result.buffer_bytes =
        static_cast<std::int64_t>(std::min<std::uint64_t>(area, std::uint64_t{1} << 48)) * 2 * result.bytes_per_pixel;
  }
  result.data_end = tiff_data_end(directory, tiled ? tile_offsets : strip_offsets, tiled ? tile_counts : strip_counts);
  if (const auto field = directory.find(orientation); field && field->type == 3 && field->count == 1) {
    const std::uint32_t value = directory.value(*field, 0);
    result.orientation = value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
    // decode_imgcodecs() overwrites the value there (upright_tiff).
    result.orientation_offset = field->values;
  }
  if (directory.next() != 0) result.warning = "the TIFF has several pages: the first was taken";
  return result;
}

CodecHeader read_pnm(Bytes bytes) {
  std::uint64_t at = 2;
  const auto next_number = [&] {
    for (;; ++at) {
      const std::uint32_t c = need(bytes, at, 1, false, "PNM");
      if (c == '#') {
        while (need(bytes, at, 1, false, "PNM") != '\n') ++at;
      } else if (std::isspace(static_cast<int>(c)) == 0) {
        break;
      }
    }
    std::uint64_t value = 0;
    bool any = false;
    for (std::optional<std::uint32_t> c; (c = number(bytes, at, 1, false)) && std::isdigit(static_cast<int>(*c)) != 0;
         ++at, any = true) {
      // A number of any length must not overflow; plan_raster() refuses the result.
      value = std::min<std::uint64_t>(value * 10 + (*c - '0'), std::numeric_limits<int>::max());
    }
    if (!any) corrupt("the PNM header is not numbers");
    return static_cast<int>(value);
  };
  const int kind = bytes[1] - '0';
  CodecHeader result;
  result.size.width = next_number();
  result.size.height = next_number();
  // P1 and P4 are black and white, P2 and P5 grey, P3 and P6 RGB. P1 to P3 are text, so the header gives no length.
  const bool bitmap = kind == 1 || kind == 4;
  const int top = bitmap ? 1 : next_number();
  if (!bitmap && top != 255 && top != 65535)
    unsupported("a PNM whose white is " + std::to_string(top) + " (255 and 65535 are decoded)");
  result.bytes_per_pixel = top > 255 ? 8 : 4;
  if (kind >= 4) {
    const auto width = static_cast<std::uint64_t>(result.size.width),
               height = static_cast<std::uint64_t>(result.size.height);
    const std::uint64_t row = bitmap ? (width + 7) / 8 : width * (kind == 6 ? 3U : 1U) * (top > 255 ? 2U : 1U);
    result.data_end = at + 1 + row * height;  // overflows only for sizes that plan_raster refuses
  }
  return result;
}

CodecHeader read_jpeg2000(Bytes bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // The size of the codestream counts: the boxes around it may say anything.
  const std::size_t start = text.find("\xFF\x4F\xFF\x51"sv);
  if (start == std::string_view::npos) truncated("the JPEG 2000 file has no codestream");
  // After the markers SOC and SIZ, the length of SIZ and the capabilities: 2 bytes each.
  const std::uint64_t at = start + 8;
  // SIZ has the lower right end of the picture, then its upper left offset.
  const auto side = [&](std::uint64_t end, std::uint64_t begin) {
    const std::int64_t length =
        std::int64_t{need(bytes, at + end, 4, true, "JPEG 2000")} - need(bytes, at + begin, 4, true, "JPEG 2000");
    return to_side(static_cast<std::uint64_t>(std::max<std::int64_t>(0, length)));
  };
  CodecHeader result;
  result.size = {side(0, 8), side(4, 12)};
  const std::uint32_t components = need(bytes, at + 32, 2, true, "JPEG 2000");
  if (components > 4) unsupported("a JPEG 2000 of " + std::to_string(components) + " components");
  result.bytes_per_pixel = 8;
  // OpenJPEG keeps 32 bits a sample, and twice that while it transforms a tile.
  // No side is checked yet: the minimum prevents an overflow.
  result.buffer_bytes = std::int64_t{8} * components * result.size.width * std::min(result.size.height, 1 << 20);
  return result;
}

}  // namespace

std::optional<PictureFormat> sniff(Bytes bytes) {
  struct Signature {
    std::uint64_t offset;
    std::string_view text;
    PictureFormat format;
  };
  static constexpr std::array<Signature, 24> signatures{{{0, "\xFF\xD8"sv, PictureFormat::jpeg},
                                                         {0, "\x89PNG\r\n\x1A\n"sv, PictureFormat::png},
                                                         {8, "WEBP"sv, PictureFormat::webp},
                                                         {0, "II*\0"sv, PictureFormat::tiff},
                                                         {0, "MM\0*"sv, PictureFormat::tiff},
                                                         {0, "II+\0"sv, PictureFormat::tiff},
                                                         {0, "MM\0+"sv, PictureFormat::tiff},
                                                         {0, "\0\0\0\x0CjP  \r\n\x87\n"sv, PictureFormat::jpeg2000},
                                                         {0, "\xFF\x4F\xFF\x51"sv, PictureFormat::jpeg2000},
                                                         {0, "GIF87a"sv, PictureFormat::gif},
                                                         {0, "GIF89a"sv, PictureFormat::gif},
                                                         {4, "ftypavi"sv, PictureFormat::avif},
                                                         {4, "ftyphei"sv, PictureFormat::heic},
                                                         {4, "ftyphev"sv, PictureFormat::heic},
                                                         {4, "ftypmif1"sv, PictureFormat::heic},
                                                         {4, "ftypmsf1"sv, PictureFormat::heic},
                                                         {0, "\xFF\x0A"sv, PictureFormat::jpeg_xl},
                                                         {0, "\0\0\0\x0CJXL \r\n\x87\n"sv, PictureFormat::jpeg_xl},
                                                         {0, "8BPS\0"sv, PictureFormat::psd},
                                                         {0, "\x76\x2F\x31\x01"sv, PictureFormat::exr},
                                                         {0, "#?RADIANCE"sv, PictureFormat::hdr},
                                                         {0, "#?RGBE"sv, PictureFormat::hdr},
                                                         {0, "\0\0\1\0"sv, PictureFormat::ico},
                                                         {0, "<svg"sv, PictureFormat::svg}}};
  for (const auto& [offset, text, format] : signatures) {
    if (has(bytes, offset, text) && (format != PictureFormat::webp || has(bytes, 0, "RIFF"))) return format;
  }
  // Two letters are weak evidence, so the reserved fields must be zero too.
  if (has(bytes, 0, "BM") && has(bytes, 6, "\0\0\0\0"sv)) return PictureFormat::bmp;
  if (bytes.size() > 2 && bytes[0] == 'P' && bytes[1] >= '1' && bytes[1] <= '6' &&
      (std::isspace(bytes[2]) != 0 || bytes[2] == '#')) {
    return PictureFormat::pnm;
  }
  if (has(bytes, 0, "<?xml") &&
      std::string_view(reinterpret_cast<const char*>(bytes.data()), std::min<std::size_t>(bytes.size(), 4096))
              .find("<svg") != std::string_view::npos) {
    return PictureFormat::svg;
  }
  return std::nullopt;
}

std::string describe_content(Bytes bytes) {
  const Bytes head = slice(bytes, 0, 1024);
  std::string text(head.begin(), head.end());
  const bool printable = std::all_of(text.begin(), text.end(),
                                     [](unsigned char c) { return c >= 32 || c == '\n' || c == '\r' || c == '\t'; });
  if (has(bytes, 0, "%PDF")) return "a PDF document";
  if (has(bytes, 0, "PK\3\4")) return "a ZIP archive";
  if (has(bytes, 0, "\x1F\x8B")) return "gzip-compressed data";
  // sniff() knows the pictures in this container (AVIF, HEIC), so the rest are videos.
  if (has(bytes, 4, "ftyp")) return "a video";
  if (has(bytes, 0, "version https://git-lfs")) return "a Git LFS pointer: run 'git lfs pull'";
  if (has(bytes, 128, "DICM")) return "a slice of a DICOM volume, which configs/volume.yaml reads";
  if (has(bytes, 344, "n+1")) return "a NIfTI volume, which configs/volume.yaml reads";
  if (!printable) {
    const bool zeros = std::all_of(head.begin(), head.end(), [](std::uint8_t c) { return c == 0; });
    return zeros ? "zero bytes only, as an interrupted copy leaves them" : "unknown binary data";
  }
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  if (text.find("<html") != std::string::npos || text.find("<!doctype html") != std::string::npos) return "HTML text";
  if (has(bytes, 0, "<?xml")) return "XML text";
  const std::size_t start = text.find_first_not_of(" \t\r\n");
  if (start != std::string::npos && (text[start] == '{' || text[start] == '[')) return "JSON text";
  return "plain text";
}

CodecHeader read_codec_header(Bytes bytes, PictureFormat format) {
  switch (format) {
    case PictureFormat::bmp:
      return read_bmp(bytes);
    case PictureFormat::webp:
      return read_webp(bytes);
    case PictureFormat::tiff:
      return read_tiff(bytes);
    case PictureFormat::pnm:
      return read_pnm(bytes);
    case PictureFormat::jpeg2000:
      return read_jpeg2000(bytes);
    default:
      unsupported(std::string(to_string(format)) + " is not decoded; convert it to PNG or JPEG");
  }
}

}  // namespace millrace
