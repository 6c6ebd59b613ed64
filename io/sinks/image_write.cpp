#include "io/sinks/image_write.hpp"

// jpeglib.h wants FILE declared before it.
#include <cstdio>

#include <jpeglib.h>
#include <spng.h>

#include <array>
#include <csetjmp>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>

namespace millrace {
namespace {

struct JpegErrors {
  jpeg_error_mgr manager;  // first, because libjpeg hands back a pointer to it
  std::jmp_buf back;
  std::array<char, JMSG_LENGTH_MAX> message;
};

[[noreturn]] void leave(j_common_ptr codec) {
  auto* errors = reinterpret_cast<JpegErrors*>(codec->err);
  (*codec->err->format_message)(codec, errors->message.data());
  std::longjmp(errors->back, 1);
}

/// libjpeg allocates and enlarges the buffer with malloc. compress() cannot own it, because longjmp skips destructors.
struct MallocedBytes {
  unsigned char* data = nullptr;
  unsigned long size = 0;
  MallocedBytes() = default;
  MallocedBytes(const MallocedBytes&) = delete;
  MallocedBytes& operator=(const MallocedBytes&) = delete;
  ~MallocedBytes() { std::free(data); }
};

/// False if libjpeg gave up; the message says why.
/// It has no objects with destructors, because longjmp would skip them.
bool compress(const std::uint8_t* rgb, int width, int height, int quality, JpegErrors& errors, MallocedBytes& out) {
  jpeg_compress_struct codec{};
  codec.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = leave;
  jpeg_create_compress(&codec);
  if (setjmp(errors.back) != 0) {  // NOLINT: the error interface of libjpeg
    jpeg_destroy_compress(&codec);
    return false;
  }
  jpeg_mem_dest(&codec, &out.data, &out.size);
  codec.image_width = static_cast<JDIMENSION>(width);
  codec.image_height = static_cast<JDIMENSION>(height);
  codec.input_components = 3;
  codec.in_color_space = JCS_RGB;
  jpeg_set_defaults(&codec);
  jpeg_set_quality(&codec, quality, TRUE);
  for (int i = 0; i < codec.num_components; ++i)
    codec.comp_info[i].h_samp_factor = codec.comp_info[i].v_samp_factor = 1;
  jpeg_start_compress(&codec, TRUE);
  while (codec.next_scanline < codec.image_height) {
    auto* row = const_cast<JSAMPROW>(rgb + std::size_t{3} * codec.image_width * codec.next_scanline);
    jpeg_write_scanlines(&codec, &row, 1);
  }
  jpeg_finish_compress(&codec);
  jpeg_destroy_compress(&codec);
  return true;
}

void check_spng(int status, const char* what) {
  if (status != 0)
    throw std::runtime_error(std::string("the PNG encoder failed to ") + what + ": " + spng_strerror(status));
}

}  // namespace

std::vector<std::uint8_t> encode_jpeg(const std::uint8_t* rgb, int width, int height, int quality) {
  if (width < 1 || height < 1 || width > JPEG_MAX_DIMENSION || height > JPEG_MAX_DIMENSION) {
    throw std::invalid_argument("a JPEG cannot have " + std::to_string(width) + "x" + std::to_string(height) +
                                " pixels; 1 to " + std::to_string(JPEG_MAX_DIMENSION) + " a side are possible");
  }
  JpegErrors errors{};
  MallocedBytes out;
  if (!compress(rgb, width, height, quality, errors, out)) {
    throw std::runtime_error(std::string("the JPEG encoder failed: ") + errors.message.data());
  }
  return {out.data, out.data + out.size};
}

struct GreyPng::Encoder {
  std::unique_ptr<spng_ctx, decltype(&spng_ctx_free)> context{spng_ctx_new(SPNG_CTX_ENCODER), spng_ctx_free};
};

GreyPng::GreyPng(int width, int height, int bits)
    : encoder_(std::make_unique<Encoder>()),
      row_bytes_(static_cast<std::size_t>(width) * static_cast<std::size_t>(bits) / 8),
      rows_left_(height) {
  spng_ctx* const context = encoder_->context.get();
  if (context == nullptr) throw std::bad_alloc();
  spng_ihdr header{};
  header.width = static_cast<std::uint32_t>(width);
  header.height = static_cast<std::uint32_t>(height);
  header.bit_depth = static_cast<std::uint8_t>(bits);
  header.color_type = SPNG_COLOR_TYPE_GRAYSCALE;
  check_spng(spng_set_ihdr(context, &header), "take the size");
  check_spng(spng_set_option(context, SPNG_ENCODE_TO_BUFFER, 1), "write to memory");
  // A row of a label map is mostly equal to the row above, so the "up" filter turns it into zeros.
  // The fastest level packs these 1000 to 1.
  check_spng(spng_set_option(context, SPNG_FILTER_CHOICE, SPNG_FILTER_CHOICE_UP), "choose the filter");
  check_spng(spng_set_option(context, SPNG_IMG_COMPRESSION_LEVEL, 1), "choose the level");
  check_spng(spng_encode_image(context, nullptr, 0, SPNG_FMT_PNG, SPNG_ENCODE_PROGRESSIVE | SPNG_ENCODE_FINALIZE),
             "begin");
}

GreyPng::~GreyPng() = default;

void GreyPng::add_row(const void* values) {
  --rows_left_;
  const int status = spng_encode_row(encoder_->context.get(), values, row_bytes_);
  // libspng returns SPNG_EOI with the last row.
  if (status != SPNG_EOI || rows_left_ != 0) check_spng(status, "take a row");
}

std::vector<std::uint8_t> GreyPng::finish() {
  if (rows_left_ != 0) throw std::logic_error("a PNG without all of its rows");
  std::size_t size = 0;
  int status = 0;
  const std::unique_ptr<std::uint8_t, decltype(&std::free)> bytes(
      static_cast<std::uint8_t*>(spng_get_png_buffer(encoder_->context.get(), &size, &status)), std::free);
  check_spng(status, "finish");
  return {bytes.get(), bytes.get() + size};
}

}  // namespace millrace
