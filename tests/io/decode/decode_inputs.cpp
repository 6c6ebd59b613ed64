#include "tests/io/decode/decode_inputs.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include <jpeglib.h>
#include <spng.h>
#include <sys/resource.h>
#include <unistd.h>

#include <opencv2/core.hpp>

namespace millrace::test {

Rgb ramp(int width, int height) {
  Rgb picture{width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const double u = (x + 0.5) / width, v = (y + 0.5) / height;
      picture.data.push_back(static_cast<std::uint8_t>(20 + 200 * u));
      picture.data.push_back(static_cast<std::uint8_t>(230 - 190 * v));
      picture.data.push_back(static_cast<std::uint8_t>(60 + 100 * u * v + 30 * std::sin(9 * u + 4 * v)));
    }
  }
  return picture;
}

File make_jpeg(const Rgb& picture, const JpegOptions& options) {
  jpeg_compress_struct c{};
  jpeg_error_mgr errors{};
  c.err = jpeg_std_error(&errors);
  jpeg_create_compress(&c);
  unsigned char* memory = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&c, &memory, &size);
  c.image_width = static_cast<JDIMENSION>(picture.width);
  c.image_height = static_cast<JDIMENSION>(picture.height);
  c.input_components = options.components;
  c.in_color_space = options.components == 1 ? JCS_GRAYSCALE : options.components == 3 ? JCS_RGB : JCS_CMYK;
  jpeg_set_defaults(&c);
  if (options.components == 4) {
    jpeg_set_colorspace(&c, options.ycck ? JCS_YCCK : JCS_CMYK);
    c.write_Adobe_marker = options.adobe ? TRUE : FALSE;
  }
  jpeg_set_quality(&c, options.quality, TRUE);
  if (!options.subsampled) c.comp_info[0].h_samp_factor = c.comp_info[0].v_samp_factor = 1;
  if (options.progressive) jpeg_simple_progression(&c);
  c.arith_code = options.arithmetic ? TRUE : FALSE;
  c.restart_in_rows = options.restart_rows;
  jpeg_start_compress(&c, TRUE);
  if (options.exif) {
    File payload{'E', 'x', 'i', 'f', 0, 0};
    payload.insert(payload.end(), options.exif->begin(), options.exif->end());
    jpeg_write_marker(&c, JPEG_APP0 + 1, payload.data(), static_cast<unsigned>(payload.size()));
  }
  std::vector<std::uint8_t> line;
  for (int y = 0; y < picture.height; ++y) {
    line.clear();
    for (int x = 0; x < picture.width; ++x) {
      const std::uint8_t* p = picture.at(x, y);
      line.insert(line.end(), p, p + std::min(3, options.components));
      if (options.components == 4) line.push_back(200);
    }
    JSAMPROW row = line.data();
    jpeg_write_scanlines(&c, &row, 1);
  }
  jpeg_finish_compress(&c);
  File file(memory, memory + size);
  jpeg_destroy_compress(&c);
  std::free(memory);
  return file;
}

Rgb plain_libjpeg(const File& file) {
  jpeg_decompress_struct c{};
  jpeg_error_mgr errors{};
  c.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&c);
  jpeg_mem_src(&c, file.data(), file.size());
  jpeg_read_header(&c, TRUE);
  c.out_color_space = JCS_RGB;
  jpeg_start_decompress(&c);
  Rgb picture{static_cast<int>(c.output_width), static_cast<int>(c.output_height), {}};
  picture.data.resize(std::size_t{3} * c.output_width * c.output_height);
  while (c.output_scanline < c.output_height) {
    JSAMPROW row = picture.data.data() + std::size_t{3} * c.output_width * c.output_scanline;
    jpeg_read_scanlines(&c, &row, 1);
  }
  jpeg_finish_decompress(&c);
  jpeg_destroy_decompress(&c);
  return picture;
}

File exif_block(std::uint32_t value, bool big_endian, std::uint32_t tag, std::uint32_t type) {
  File block;
  const auto put = [&](std::uint32_t number, int size) {
    for (int i = 0; i < size; ++i)
      block.push_back(static_cast<std::uint8_t>(number >> 8 * (big_endian ? size - 1 - i : i)));
  };
  block.insert(block.end(), 2, big_endian ? 'M' : 'I');
  put(42, 2);
  put(8, 4);
  put(1, 2);
  put(tag, 2);
  put(type, 2);
  put(1, 4);
  put(value, 2);
  put(0, 2);
  put(0, 4);
  return block;
}

namespace {

std::uint32_t crc32(const File& bytes) {
  std::uint32_t crc = 0xFFFFFFFF;
  for (const std::uint8_t byte : bytes) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0U);
  }
  return ~crc;
}

void put_big(File& file, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) file.push_back(static_cast<std::uint8_t>(value >> shift));
}

void expect_spng(int code) {
  if (code != 0) throw std::runtime_error(std::string("test encoder: ") + spng_strerror(code));
}

}  // namespace

File png_chunk(const std::string& type, const File& payload) {
  const File body = File(type.begin(), type.end()) + payload;
  File chunk;
  put_big(chunk, static_cast<std::uint32_t>(payload.size()));
  chunk = chunk + body;
  put_big(chunk, crc32(body));
  return chunk;
}

File png_header(std::uint32_t width, std::uint32_t height, int bit_depth, int colour_type, bool interlaced) {
  File payload;
  put_big(payload, width);
  put_big(payload, height);
  payload.insert(payload.end(), {static_cast<std::uint8_t>(bit_depth), static_cast<std::uint8_t>(colour_type), 0, 0,
                                 static_cast<std::uint8_t>(interlaced ? 1 : 0)});
  return File{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'} + png_chunk("IHDR", payload);
}

File make_png(int width, int height, const std::vector<std::uint16_t>& samples, const PngOptions& options) {
  constexpr int channels_of[] = {1, 0, 3, 1, 2, 0, 4};
  const std::size_t per_row =
      static_cast<std::size_t>(width) * static_cast<std::size_t>(channels_of[options.colour_type]);
  File rows;
  for (std::size_t y = 0; y < static_cast<std::size_t>(height); ++y) {
    int bits = 0;
    unsigned byte = 0;
    for (std::size_t i = 0; i < per_row; ++i) {
      const unsigned sample = samples.at(y * per_row + i);
      if (options.bit_depth == 16) {  // libspng expects the byte order of the machine
        rows.push_back(static_cast<std::uint8_t>(sample));
        rows.push_back(static_cast<std::uint8_t>(sample >> 8));
        continue;
      }
      byte = byte << options.bit_depth | sample;
      bits += options.bit_depth;
      if (bits == 8) {
        rows.push_back(static_cast<std::uint8_t>(byte));
        byte = 0;
        bits = 0;
      }
    }
    if (bits > 0) rows.push_back(static_cast<std::uint8_t>(byte << (8 - bits)));
  }
  spng_ctx* c = spng_ctx_new(SPNG_CTX_ENCODER);
  spng_set_option(c, SPNG_ENCODE_TO_BUFFER, 1);
  spng_ihdr header{static_cast<std::uint32_t>(width),
                   static_cast<std::uint32_t>(height),
                   static_cast<std::uint8_t>(options.bit_depth),
                   static_cast<std::uint8_t>(options.colour_type),
                   0,
                   0,
                   static_cast<std::uint8_t>(options.interlaced ? 1 : 0)};
  expect_spng(spng_set_ihdr(c, &header));
  if (!options.palette.empty()) {
    spng_plte palette{};
    palette.n_entries = static_cast<std::uint32_t>(options.palette.size() / 3);
    for (std::size_t i = 0; i < options.palette.size() / 3; ++i) {
      palette.entries[i] = {options.palette[3 * i], options.palette[3 * i + 1], options.palette[3 * i + 2], 255};
    }
    expect_spng(spng_set_plte(c, &palette));
  }
  if (!options.palette_alpha.empty() || options.grey_key) {
    spng_trns transparency{};
    transparency.n_type3_entries = static_cast<std::uint32_t>(options.palette_alpha.size());
    std::copy(options.palette_alpha.begin(), options.palette_alpha.end(), transparency.type3_alpha);
    transparency.gray = options.grey_key.value_or(0);
    expect_spng(spng_set_trns(c, &transparency));
  }
  expect_spng(spng_encode_image(c, rows.data(), rows.size(), SPNG_FMT_PNG, SPNG_ENCODE_FINALIZE));
  std::size_t size = 0;
  int error = 0;
  void* memory = spng_get_png_buffer(c, &size, &error);
  expect_spng(error);
  File file(static_cast<std::uint8_t*>(memory), static_cast<std::uint8_t*>(memory) + size);
  std::free(memory);
  spng_ctx_free(c);
  File extra;
  for (const auto& [type, payload] : options.chunks) extra = extra + png_chunk(type, payload);
  file.insert(file.begin() + 33, extra.begin(), extra.end());  // after signature and IHDR
  return file;
}

File make_png(const Rgb& picture, bool interlaced) {
  return make_png(picture.width, picture.height, {picture.data.begin(), picture.data.end()},
                  {.interlaced = interlaced});
}

File operator+(File a, const File& b) {
  for (const std::uint8_t byte : b) a.push_back(byte);
  return a;
}

File cut(const File& file, std::size_t size) {
  return {file.begin(), file.begin() + static_cast<std::ptrdiff_t>(std::min(size, file.size()))};
}

std::size_t find_marker(const File& file, std::uint8_t code) {
  for (std::size_t i = 2; i + 4 < file.size();) {
    if (file[i] != 0xFF) break;
    if (file[i + 1] == code) return i + 2;
    i += 2 + static_cast<std::size_t>(file[i + 2] << 8 | file[i + 3]);
  }
  throw std::runtime_error("test: no such marker");
}

File with_jpeg_size(File file, int width, int height) {
  std::size_t frame = 0;
  for (const int code : {0xC0, 0xC1, 0xC2}) {
    try {
      frame = find_marker(file, static_cast<std::uint8_t>(code));
    } catch (const std::runtime_error&) {
    }
  }
  file[frame + 3] = static_cast<std::uint8_t>(height >> 8);
  file[frame + 4] = static_cast<std::uint8_t>(height);
  file[frame + 5] = static_cast<std::uint8_t>(width >> 8);
  file[frame + 6] = static_cast<std::uint8_t>(width);
  return file;
}

Decoded decode_file(const File& file, const DecodeLimits& limits) {
  // An exact copy on the heap, so that AddressSanitizer reports a read of one byte too many.
  const std::unique_ptr<std::uint8_t[]> exact(new std::uint8_t[file.size()]);
  std::copy(file.begin(), file.end(), exact.get());
  const std::span<const std::uint8_t> bytes(exact.get(), file.size());
  const PictureInfo info = probe(bytes, limits);
  return decode(bytes, info, limits, [](std::size_t size) {
    return std::shared_ptr<std::uint8_t>(new std::uint8_t[size], std::default_delete<std::uint8_t[]>());
  });
}

Rgb pixels_of(const Decoded& decoded) {
  const std::uint8_t* data = decoded.pixels.data.get();
  return {decoded.pixels.width, decoded.pixels.height, {data, data + decoded.info.pixel_bytes}};
}

Outcome outcome_of(const File& file, const DecodeLimits& limits) {
  try {
    return {std::nullopt, {}, decode_file(file, limits)};
  } catch (const PictureError& error) {
    return {error.reason(), error.what(), std::nullopt};
  }
}

Rgb reference_reduce(const Rgb& picture, int reduction) {
  Rgb result{(picture.width + reduction - 1) / reduction, (picture.height + reduction - 1) / reduction, {}};
  for (int by = 0; by < result.height; ++by) {
    for (int bx = 0; bx < result.width; ++bx) {
      for (int c = 0; c < 3; ++c) {
        double sum = 0, count = 0;
        for (int y = by * reduction; y < std::min(picture.height, (by + 1) * reduction); ++y) {
          for (int x = bx * reduction; x < std::min(picture.width, (bx + 1) * reduction); ++x) {
            sum += picture.at(x, y)[c];
            count += 1;
          }
        }
        result.data.push_back(static_cast<std::uint8_t>(std::floor(sum / count + 0.5)));
      }
    }
  }
  return result;
}

Rgb reference_orient(const Rgb& picture, int orientation) {
  const cv::Mat file(picture.height, picture.width, CV_8UC3, const_cast<std::uint8_t*>(picture.data.data()));
  cv::Mat display = file.clone();
  switch (orientation) {  // as the EXIF standard names them: where row 0 and column 0 of the file are on display
    case 2:
      cv::flip(file, display, 1);
      break;
    case 3:
      cv::rotate(file, display, cv::ROTATE_180);
      break;
    case 4:
      cv::flip(file, display, 0);
      break;
    case 5:
      cv::transpose(file, display);
      break;
    case 6:
      cv::rotate(file, display, cv::ROTATE_90_CLOCKWISE);
      break;
    case 7:
      cv::rotate(file, display, cv::ROTATE_180);
      display = display.t();
      break;
    case 8:
      cv::rotate(file, display, cv::ROTATE_90_COUNTERCLOCKWISE);
      break;
    default:
      break;
  }
  return {display.cols, display.rows, {display.data, display.data + display.total() * 3}};
}

int max_difference(const Rgb& a, const Rgb& b) {
  if (a.width != b.width || a.height != b.height) return 1000;
  int largest = 0;
  for (std::size_t i = 0; i < a.data.size(); ++i) largest = std::max(largest, std::abs(a.data[i] - b.data[i]));
  return largest;
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

std::int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return std::int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace millrace::test
