#include "io/decode/png.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>

#include <spng.h>

#include "io/decode/decode_bytes.hpp"
#include "io/decode/decode_raster.hpp"
#include "io/decode/exif.hpp"

namespace millrace {
namespace {

constexpr std::uint64_t signature_bytes = 8;
constexpr std::uint64_t chunk_frame_bytes = 12;    // length, type, checksum
constexpr std::size_t longest_chunk = 0x7FFFFFFF;  // by the PNG standard
constexpr std::uint8_t filler = 128;

/// One chunk of the file, cut off where the file ends.
struct Chunk {
  Bytes whole, payload;
};

std::optional<Chunk> chunk_at(Bytes png, std::uint64_t offset) {
  const auto length = number(png, offset, 4, true);
  if (!length) return std::nullopt;
  return Chunk{slice(png, offset, chunk_frame_bytes + *length), slice(png, offset + 8, *length)};
}

/// Whether libspng sees the chunk. Critical chunks have a capital first letter.
bool is_shown(const Chunk& chunk) {
  return chunk.whole.size() < 8 || (chunk.whole[4] & 0x20) == 0 || has(chunk.whole, 4, "tRNS");
}

/// The checksum of PNG chunks (CRC-32, ISO 3309).
std::uint32_t checksum(Bytes bytes) {
  std::uint32_t crc = ~0U;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

/// The chunks that libspng sees, as one stream.
/// If the end of the file cuts a data chunk, libspng sees a shorter one with a valid checksum.
/// It reads blocks of a chunk whole or not at all, so it would otherwise lose rows that exist.
class ShownChunks {
 public:
  explicit ShownChunks(Bytes png) : png_(png), parts_{slice(png, 0, signature_bytes)}, next_(parts_[0].size()) {}

  bool read(std::uint8_t* to, std::size_t count) {
    while (count > 0) {
      while (part_ < parts_.size() && parts_[part_].empty()) ++part_;
      if (part_ == parts_.size()) {
        if (!advance()) return false;
        continue;
      }
      Bytes& from = parts_[part_];
      const std::size_t size = std::min(count, from.size());
      std::memcpy(to, from.data(), size);
      from = from.subspan(size);
      to += size;
      count -= size;
    }
    return true;
  }

 private:
  bool advance() {
    const auto chunk = chunk_at(png_, next_);
    if (!chunk) return false;
    next_ += chunk->whole.size();
    part_ = 0;
    parts_ = {};
    if (!is_shown(*chunk)) return true;
    parts_[0] = chunk->whole;
    const bool cut = chunk->whole.size() < chunk_frame_bytes + *number(chunk->whole, 0, 4, true);
    if (cut && has(chunk->whole, 4, "IDAT")) {
      put_big(length_, static_cast<std::uint32_t>(chunk->payload.size()));
      const Bytes checked = slice(chunk->whole, 4, 4 + chunk->payload.size());
      put_big(checksum_, checksum(checked));
      parts_ = {length_, checked, checksum_};
    }
    return true;
  }

  static void put_big(std::array<std::uint8_t, 4>& to, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) to[i] = static_cast<std::uint8_t>(value >> (24 - 8 * i));
  }

  Bytes png_;
  std::array<Bytes, 3> parts_;  // what is not read yet of the current chunk
  std::size_t part_ = 0;
  std::uint64_t next_;  // where the next chunk starts
  std::array<std::uint8_t, 4> length_{}, checksum_{};
};

/// The facts of the ancillary chunks that we read ourselves.
/// Their checksums are not verified: content that makes no sense is ignored.
struct Extras {
  int orientation = 1;
  bool animated = false;
};

Extras read_extras(Bytes png) {
  Extras extras;
  std::uint64_t at = signature_bytes;
  while (const auto chunk = chunk_at(png, at)) {
    if (has(chunk->whole, 4, "eXIf")) extras.orientation = exif_orientation(chunk->payload);
    if (has(chunk->whole, 4, "acTL")) extras.animated = true;
    if (has(chunk->whole, 4, "IEND")) break;
    at += chunk->whole.size();
  }
  return extras;
}

std::string sentence(int code) { return std::string("the PNG data are inconsistent: ") + spng_strerror(code); }

bool is_early_end(int code) { return code == SPNG_IO_EOF || code == SPNG_EIDAT_TOO_SHORT; }

PictureError error_of(int code) {
  if (code == SPNG_EMEM) return {Reason::oom_host, "no memory for the PNG decoder"};
  if (code == SPNG_ECHUNK_LIMITS) return {Reason::too_large, "a chunk of the PNG is larger than the file"};
  if (code == SPNG_EOVERFLOW) return {Reason::too_large, "the PNG header claims a size beyond all limits"};
  if (is_early_end(code)) return {Reason::truncated, "the PNG data end inside the header"};
  return {Reason::corrupt_data, sentence(code)};
}

int blend(unsigned value, unsigned alpha, unsigned top) {
  return static_cast<int>(value * alpha + top * (top - alpha));
}

/// RGBA8 over white: round((v a + 255 (255 - a)) / 255).
void flatten8(const std::uint8_t* from, int count, std::uint8_t* to, std::size_t step) {
  for (int i = 0; i < count; ++i, from += 4, to += step) {
    for (int c = 0; c < 3; ++c) to[c] = static_cast<std::uint8_t>((blend(from[c], from[3], 255) + 127) / 255);
  }
}

/// RGBA16 over white, then to 8 bits, rounded once: round(v / 257) of the blended value.
void flatten16(const std::uint8_t* from, int count, std::uint8_t* to, std::size_t step) {
  constexpr std::uint64_t top = 65535;
  for (int i = 0; i < count; ++i, from += 8, to += step) {
    std::array<std::uint16_t, 4> pixel{};
    std::memcpy(pixel.data(), from, 8);
    for (std::size_t c = 0; c < 3; ++c) {
      const std::uint64_t blended = pixel[c] * std::uint64_t{pixel[3]} + top * (top - pixel[3]);
      to[c] = static_cast<std::uint8_t>((blended * 255 + top * top / 2) / (top * top));
    }
  }
}

void repeat_grey(const std::uint8_t* from, int count, std::uint8_t* to, std::size_t step) {
  for (int i = 0; i < count; ++i, ++from, to += step) to[0] = to[1] = to[2] = *from;
}

void copy_rgb(const std::uint8_t* from, int count, std::uint8_t* to, std::size_t step) {
  for (int i = 0; i < count; ++i, from += 3, to += step) std::memcpy(to, from, 3);
}

/// One PNG file in libspng.
class PngFile {
 public:
  explicit PngFile(Bytes bytes) : chunks_(bytes), context_(spng_ctx_new(0), spng_ctx_free) {
    if (!context_) throw std::bad_alloc();
    // No chunk is longer than the file, or than the format allows.
    // The limit for all chunks that libspng keeps may not be lower than the limit for one.
    // That is safe: libspng keeps or unpacks only PLTE and tRNS, which are small (ShownChunks).
    const std::size_t longest = std::clamp<std::size_t>(bytes.size(), 1024, longest_chunk);
    check(spng_set_chunk_limits(context_.get(), longest, longest));
    const auto read = [](spng_ctx*, void* chunks, void* to, std::size_t count) -> int {
      return static_cast<ShownChunks*>(chunks)->read(static_cast<std::uint8_t*>(to), count) ? SPNG_OK : SPNG_IO_EOF;
    };
    check(spng_set_png_stream(context_.get(), read, &chunks_));
    check(spng_get_ihdr(context_.get(), &header_));
  }
  PngFile(const PngFile&) = delete;
  PngFile& operator=(const PngFile&) = delete;

  FileSize size() const { return {static_cast<int>(header_.width), static_cast<int>(header_.height)}; }
  bool interlaced() const { return header_.interlace_method != 0; }

  void decode(Raster& raster, double accept_truncated, std::vector<std::string>& warnings) {
    choose_format();
    // Progressive: row by row, so no buffer of the whole picture is needed.
    check(spng_decode_image(context_.get(), nullptr, 0, format_, SPNG_DECODE_TRNS | SPNG_DECODE_PROGRESSIVE));
    const int code = interlaced() ? read_interlaced(raster) : read_rows(raster);
    if (is_early_end(code)) {
      const double fraction = static_cast<double>(rows_complete_) / size().height;
      std::array<char, 160> text{};
      std::snprintf(text.data(), text.size(), "the PNG data end early: %d of %d rows complete (%.1f %%)",
                    rows_complete_, size().height, 100 * fraction);
      if (fraction < accept_truncated) throw PictureError(Reason::truncated, text.data());
      warnings.push_back(std::string(text.data()) + "; the rest is filler");
      return;
    }
    if (code != SPNG_EOI) throw error_of(code);
    // Read on, because the last checksums come after the last row.
    const int end = spng_decode_chunks(context_.get());
    if (is_early_end(end)) {
      warnings.emplace_back("the end chunk of the PNG is missing");
    } else if (end != SPNG_OK) {
      throw error_of(end);
    }
  }

 private:
  static void check(int code) {
    if (code != SPNG_OK) throw error_of(code);
  }

  void choose_format() {
    spng_trns transparency{};
    const int code = spng_get_trns(context_.get(), &transparency);
    if (code != SPNG_OK && code != SPNG_ECHUNKAVAIL) throw error_of(code);
    const bool alpha = code == SPNG_OK || header_.color_type == SPNG_COLOR_TYPE_GRAYSCALE_ALPHA ||
                       header_.color_type == SPNG_COLOR_TYPE_TRUECOLOR_ALPHA;
    // Also without transparency: libspng then gives every pixel full alpha, and flatten16() rounds v / 257.
    if (header_.bit_depth == 16) {
      format_ = SPNG_FMT_RGBA16;
      pixel_bytes_ = 8;
      convert_ = flatten16;
    } else if (alpha) {
      format_ = SPNG_FMT_RGBA8;
      pixel_bytes_ = 4;
      convert_ = flatten8;
    } else if (header_.color_type == SPNG_COLOR_TYPE_GRAYSCALE) {  // not RGB8: libspng makes it pixel by pixel
      format_ = SPNG_FMT_G8;
      pixel_bytes_ = 1;
      convert_ = repeat_grey;
    }
    // RGB8 rows go straight into the raster, except passes, which have only some pixels of a row.
    if (format_ != SPNG_FMT_RGB8 || interlaced()) line_.resize(header_.width * pixel_bytes_);
  }

  int read_rows(Raster& raster) {
    const auto [width, height] = size();
    int code = SPNG_OK;
    for (int y = 0; y < height; ++y) {
      std::uint8_t* to = raster.row(y);
      if (code == SPNG_OK) {
        std::uint8_t* target = line_.empty() ? to : line_.data();
        code = spng_decode_row(context_.get(), target, static_cast<std::size_t>(width) * pixel_bytes_);
        // libspng returns SPNG_EOI with the last row.
        const bool done = code == SPNG_OK || code == SPNG_EOI;
        if (!done && !is_early_end(code)) return code;
        if (done && !line_.empty()) convert_(line_.data(), width, to, 3);
        if (done) rows_complete_ = y + 1;
      }
      if (rows_complete_ <= y) std::memset(to, filler, std::size_t{3} * static_cast<std::size_t>(width));
      raster.commit(y + 1);
    }
    return code;
  }

  /// Seven passes over the picture.
  /// They go into the raster itself if its rows are those of the file, else into a buffer first.
  int read_interlaced(Raster& raster) {
    constexpr std::array<int, 7> first_x{0, 4, 0, 2, 0, 1, 0}, step_x{8, 8, 4, 4, 2, 2, 1};
    const auto [width, height] = size();
    const std::size_t stride = std::size_t{3} * static_cast<std::size_t>(width);
    std::unique_ptr<std::uint8_t[]> own;
    if (!raster.direct()) own.reset(new std::uint8_t[stride * static_cast<std::size_t>(height)]);
    const auto row = [&](int y) { return own ? own.get() + stride * static_cast<std::size_t>(y) : raster.row(y); };
    bool filled = false;
    int code = SPNG_OK;
    while (code == SPNG_OK) {
      spng_row_info at{};
      code = spng_get_row_info(context_.get(), &at);
      if (code != SPNG_OK) break;
      code = spng_decode_row(context_.get(), line_.data(), line_.size());
      if (code != SPNG_OK && code != SPNG_EOI) break;
      const auto pass = static_cast<std::size_t>(at.pass);
      const int y = static_cast<int>(at.row_num);
      const int start = first_x[pass], step = step_x[pass], count = (width - start + step - 1) / step;
      pick(start, step, count, row(y));
      // The seventh pass has the odd rows. It also completes the even row above.
      if (pass == 6) rows_complete_ = std::min(y + 2, height);
    }
    if (code == SPNG_EOI) rows_complete_ = height;
    if (is_early_end(code)) {
      for (int y = rows_complete_; y < height; ++y) std::memset(row(y), filler, stride);
      filled = true;
    }
    if (!own || (code != SPNG_EOI && !filled)) return code;
    for (int y = 0; y < height; ++y) {
      std::memcpy(raster.row(y), row(y), stride);
      raster.commit(y + 1);
    }
    return code;
  }

  /// libspng spreads the pixels of a pass over the row. Copies these and leaves the others as they are.
  void pick(int start, int step, int count, std::uint8_t* row) {
    const std::uint8_t* from = line_.data() + static_cast<std::size_t>(start) * pixel_bytes_;
    for (int i = 0; i < count; ++i) {
      convert_(from, 1, row + 3 * (static_cast<std::ptrdiff_t>(start) + static_cast<std::ptrdiff_t>(i) * step), 3);
      from += static_cast<std::size_t>(step) * pixel_bytes_;
    }
  }

  ShownChunks chunks_;
  std::unique_ptr<spng_ctx, void (*)(spng_ctx*)> context_;
  spng_ihdr header_{};
  int format_ = SPNG_FMT_RGB8;
  std::size_t pixel_bytes_ = 3;
  void (*convert_)(const std::uint8_t*, int, std::uint8_t*, std::size_t) = copy_rgb;
  std::vector<std::uint8_t> line_;
  int rows_complete_ = 0;
};

}  // namespace

PictureInfo probe_png(std::span<const std::uint8_t> bytes, const DecodeLimits& limits) {
  PngFile file(bytes);
  PictureInfo info{.format = PictureFormat::png, .orientation = read_extras(bytes).orientation};
  plan_raster(info, file.size(), limits);
  if (file.interlaced() && (info.reduction > 1 || info.orientation > 1)) {
    info.working_bytes = 3LL * info.width * info.height;
    check_working_bytes(info, limits, "the passes of an interlaced PNG");
  }
  return info;
}

void decode_png(std::span<const std::uint8_t> bytes, const PictureInfo& info, const DecodeLimits& limits,
                std::uint8_t* pixels, std::vector<std::string>& warnings) {
  PngFile file(bytes);
  const FileSize expected = file_size_of(info);
  if (file.size().width != expected.width || file.size().height != expected.height) {
    throw PictureError(Reason::changed_since_plan, "the PNG changed after its header was read");
  }
  Raster raster(info, pixels);
  if (read_extras(bytes).animated) warnings.emplace_back("the PNG is animated: its still picture was taken");
  file.decode(raster, limits.accept_truncated, warnings);
}

}  // namespace millrace
