/* A fake libnvjpeg with two engines of four cores. It decodes any JPEG to the same pixels: (row + 2 * column + channel) modulo 256.
   The function named by FAKE_NVJPEG fails with status 7. With FAKE_NVJPEG=engines there are no engines. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  unsigned char* channel[4];
  size_t pitch[4];
} Image;

static int batch;
static int object;

static int status(const char* name) {
  const char* fails = getenv("FAKE_NVJPEG");
  return fails && strcmp(fails, name) == 0 ? 7 : 0;
}

int nvjpegCreateEx(int backend, void* device, void* pinned, unsigned flags, void** handle) {
  (void)device, (void)pinned, (void)flags;
  *handle = &object;
  return backend == 3 ? status(__func__) : 2;
}
int nvjpegDestroy(void* handle) { return handle == &object ? 0 : 2; }
int nvjpegGetHardwareDecoderInfo(void* handle, unsigned* engines, unsigned* cores) {
  (void)handle;
  *engines = status("engines") ? 0 : 2;
  *cores = 4;
  return status(__func__);
}
int nvjpegJpegStateCreate(void* handle, void** state) { return *state = &object, handle == &object ? 0 : 2; }
int nvjpegJpegStateDestroy(void* state) { return state == &object ? 0 : 2; }
int nvjpegJpegStreamCreate(void* handle, void** stream) { return *stream = &object, handle == &object ? 0 : 2; }
int nvjpegJpegStreamDestroy(void* stream) { return stream == &object ? 0 : 2; }
int nvjpegJpegStreamParseHeader(void* handle, const unsigned char* data, size_t length, void* stream) {
  (void)handle, (void)stream;
  return length > 2 && data[0] == 0xff && data[1] == 0xd8 ? 0 : 3;
}
int nvjpegDecodeBatchedSupported(void* handle, void* stream, int* unsupported) {
  (void)handle, (void)stream;
  return *unsupported = status(__func__) != 0, 0;
}
/* Reads the first frame header. */
int nvjpegGetImageInfo(void* handle, const unsigned char* data, size_t length, int* components, int* subsampling, int* widths, int* heights) {
  (void)handle;
  for (size_t at = 2; at + 9 < length; at += 2 + 256 * data[at + 2] + data[at + 3]) {
    if (data[at] != 0xff) return 3;
    if (data[at + 1] < 0xc0 || data[at + 1] > 0xc2) continue;
    *heights = 256 * data[at + 5] + data[at + 6];
    *widths = 256 * data[at + 7] + data[at + 8];
    *components = data[at + 9];
    *subsampling = 0;
    return 0;
  }
  return 10;
}
int nvjpegDecodeBatchedInitialize(void* handle, void* state, int size, int threads, int format) {
  (void)handle, (void)state;
  batch = size;
  return format == 5 && threads > 0 ? 0 : 2;
}
int nvjpegDecodeBatched(void* handle, void* state, const unsigned char* const* data, const size_t* lengths, Image* images, void* stream) {
  (void)state, (void)stream;
  for (int k = 0; k < batch; ++k) {
    int components, subsampling, width, height;
    if (nvjpegGetImageInfo(handle, data[k], lengths[k], &components, &subsampling, &width, &height)) return 3;
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < 3 * width; ++x) images[k].channel[0][y * images[k].pitch[0] + x] = y + 2 * (x / 3) + x % 3;
    }
  }
  return status(__func__);
}
