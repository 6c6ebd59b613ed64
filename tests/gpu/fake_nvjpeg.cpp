// A libnvjpeg.so.13 for tests, without a GPU. It decodes with libjpeg, so pixels are those of the program. It fills what
// is missing of a cut file, without an error, as the real one is said to do. Variables of the environment:
// - FAKE_NVJPEG: a function that fails with status 7
// - FAKE_NVJPEG_ENGINES: engines and cores of each (default "2x4")
// - FAKE_NVJPEG_PIXELS: "grey": 128; "pattern": (row + 2 x column + channel) modulo 256
// - FAKE_NVJPEG_TOGETHER: a number; a picture waits until this many are being decoded
// - FAKE_NVJPEG_LOG: file to which nvjpegDestroy() writes the number of pictures, and the most at a time
#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>

#include <jpeglib.h>

namespace {

constexpr int invalid = 2, bad_jpeg = 3, unsupported = 4, arch_mismatch = 7, internal = 8;
constexpr int hardware = 3, rgbi = 5;

struct Image {
  std::array<unsigned char*, 4> channel;
  std::array<std::size_t, 4> pitch;
};
struct Header {
  unsigned width = 0, height = 0, components = 0;
  bool decodes = false;
};
struct State {
  int pictures = 0;
  std::atomic<bool> busy{false};
};

std::mutex mutex;
std::condition_variable changed;
int now = 0, most = 0, done = 0, groups = 0, waiting = 0;
int handle_object;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}
int status(const char* function) { return variable("FAKE_NVJPEG") == function ? arch_mismatch : 0; }

/// libjpeg, whose errors become a status. Functions with objects that have destructors must not call it.
struct Reader {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors{};
  std::jmp_buf jump{};

  Reader(const unsigned char* data, std::size_t size) : data_(data), size_(size) {
    jpeg.err = jpeg_std_error(&errors);
    errors.error_exit = [](j_common_ptr c) { std::longjmp(static_cast<Reader*>(c->client_data)->jump, 1); };
    errors.emit_message = [](j_common_ptr, int) {};
    jpeg_create_decompress(&jpeg);
    jpeg.client_data = this;
  }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;
  ~Reader() { jpeg_destroy_decompress(&jpeg); }

  bool header() {
    if (setjmp(jump) != 0) return false;
    jpeg_mem_src(&jpeg, data_, size_);
    jpeg_read_header(&jpeg, TRUE);
    return true;
  }
  bool pixels(const Image& image) {
    if (setjmp(jump) != 0) return false;
    jpeg.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg);
    while (jpeg.output_scanline < jpeg.output_height) {
      JSAMPROW row = image.channel[0] + jpeg.output_scanline * image.pitch[0];
      jpeg_read_scanlines(&jpeg, &row, 1);
    }
    return true;
  }

 private:
  const unsigned char* data_;
  std::size_t size_;
};

int parsed(const unsigned char* data, std::size_t size, Header& header) {
  Reader reader(data, size);
  if (!reader.header()) return bad_jpeg;
  const jpeg_decompress_struct& jpeg = reader.jpeg;
  header = {jpeg.image_width, jpeg.image_height, static_cast<unsigned>(jpeg.num_components),
            jpeg.progressive_mode == 0 && jpeg.num_components != 4 && jpeg.max_h_samp_factor < 4};
  return 0;
}

int decoded(const unsigned char* data, std::size_t size, const Image& image) {
  Reader reader(data, size);
  if (!reader.header()) return bad_jpeg;
  const std::string other = variable("FAKE_NVJPEG_PIXELS");
  if (other.empty()) return reader.pixels(image) ? 0 : bad_jpeg;
  for (unsigned y = 0; y < reader.jpeg.image_height; ++y) {
    for (unsigned i = 0; i < 3 * reader.jpeg.image_width; ++i)
      image.channel[0][y * image.pitch[0] + i] =
          static_cast<unsigned char>(other == "grey" ? 128 : y + 2 * (i / 3) + i % 3);
  }
  return 0;
}

void begin_picture() {
  std::unique_lock lock(mutex);
  most = std::max(most, ++now);
  const std::string wanted = variable("FAKE_NVJPEG_TOGETHER");
  if (wanted.empty()) return;
  const int group = groups;
  if (++waiting == std::stoi(wanted)) {
    waiting = 0;
    ++groups;
    changed.notify_all();
  }
  changed.wait(lock, [&] { return groups != group; });
}

void end_picture() {
  const std::lock_guard lock(mutex);
  --now;
  ++done;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are nvJPEG's
extern "C" {
int nvjpegCreateEx(int backend, void*, void*, unsigned, void** handle) {
  *handle = &handle_object;
  const std::lock_guard lock(mutex);
  most = done = 0;  // the library stays open
  return backend == hardware ? status(__func__) : invalid;
}
int nvjpegDestroy(void* handle) {
  if (handle != &handle_object) return invalid;
  const std::lock_guard lock(mutex);
  if (const std::string log = variable("FAKE_NVJPEG_LOG"); !log.empty())
    std::ofstream(log) << "decoded " << done << ", at most " << most << " at a time\n";
  return 0;
}
int nvjpegGetHardwareDecoderInfo(void*, unsigned* engines, unsigned* cores) {
  const std::string given = variable("FAKE_NVJPEG_ENGINES");
  std::sscanf(given.empty() ? "2x4" : given.c_str(), "%ux%u", engines, cores);
  return status(__func__);
}
int nvjpegJpegStateCreate(void* handle, void** state) {
  if (handle != &handle_object) return invalid;
  *state = new State;
  return status(__func__);
}
int nvjpegJpegStateDestroy(void* state) { return delete static_cast<State*>(state), 0; }
int nvjpegJpegStreamCreate(void* handle, void** header) {
  if (handle != &handle_object) return invalid;
  *header = new Header;
  return status(__func__);
}
int nvjpegJpegStreamDestroy(void* header) { return delete static_cast<Header*>(header), 0; }
int nvjpegJpegStreamParseHeader(void*, const unsigned char* data, std::size_t size, void* header) {
  return parsed(data, size, *static_cast<Header*>(header));
}
int nvjpegJpegStreamGetFrameDimensions(void* header, unsigned* width, unsigned* height) {
  *width = static_cast<Header*>(header)->width;
  *height = static_cast<Header*>(header)->height;
  return status(__func__);
}
int nvjpegDecodeBatchedSupported(void*, void* header, int* reason) {
  *reason = !static_cast<Header*>(header)->decodes || status(__func__) != 0 ? 1 : 0;
  return 0;
}
int nvjpegGetImageInfo(void*, const unsigned char* data, std::size_t size, int* components, int* subsampling,
                       int* widths, int* heights) {
  Header header;
  if (const int failed = parsed(data, size, header)) return failed;
  *components = static_cast<int>(header.components);
  *subsampling = 0;
  *widths = static_cast<int>(header.width);
  *heights = static_cast<int>(header.height);
  return 0;
}
int nvjpegDecodeBatchedInitialize(void*, void* state, int pictures, int threads, int format) {
  static_cast<State*>(state)->pictures = pictures;
  return format == rgbi && threads > 0 ? status(__func__) : invalid;
}
int nvjpegDecodeBatched(void*, void* of, const unsigned char* const* data, const std::size_t* sizes, Image* images,
                        void*) {
  auto& state = *static_cast<State*>(of);
  if (state.busy.exchange(true)) return internal;  // a state belongs to one thread at a time
  int failed = status(__func__);
  for (int i = 0; i < state.pictures && failed == 0; ++i) {
    Header header;
    failed = parsed(data[i], sizes[i], header);
    if (failed == 0 && !header.decodes) failed = unsupported;
    if (failed != 0) break;
    begin_picture();
    failed = decoded(data[i], sizes[i], images[i]);
    end_picture();
  }
  state.busy = false;
  return failed;
}
}
// NOLINTEND(readability-identifier-naming)
