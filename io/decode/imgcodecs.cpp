#include "io/decode/imgcodecs.hpp"

#include <array>
#include <limits>
#include <string_view>

#include <dlfcn.h>

#include "base/plugin.hpp"
#include "io/decode/decode_headers.hpp"
#include "io/decode/decode_raster.hpp"
#include "io/decode/imgcodecs_plugin.hpp"

namespace millrace {
namespace {

constexpr const char* plugin_name = "libmillrace_imgcodecs.so";

/// dlopen counts references and finds a loaded library at once, so nothing is kept between pictures.
ImgcodecsDecode* load_plugin() {
  const std::string path = find_imgcodecs_plugin();
  if (path.empty()) {
    throw PictureError(Reason::codec_missing,
                       std::string(plugin_name) +
                           " is neither next to the program nor in ../lib/millrace: run 'make install' again, or set "
                           "MILLRACE_PLUGIN_DIR to its folder");
  }
  // RTLD_LOCAL: OpenCV brings Debian's BLAS, and LibTorch must not find its functions (docs/architecture.md).
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* symbol = library == nullptr ? nullptr : dlsym(library, imgcodecs_decode_symbol);
  if (symbol == nullptr) {
    const char* error = dlerror();
    throw PictureError(Reason::codec_missing, std::string("the plug-in does not load (") +
                                                  (error == nullptr ? "no reason given" : error) +
                                                  "): install Debian's libopencv-imgcodecs406");
  }
  return reinterpret_cast<ImgcodecsDecode*>(symbol);
}

Reason reason_of(ImgcodecsResult result) {
  switch (result) {
    case ImgcodecsResult::unsupported_format:
      return Reason::unsupported_format;
    case ImgcodecsResult::out_of_memory:
      return Reason::oom_host;
    default:
      return Reason::corrupt_data;
  }
}

void put_little(std::vector<std::uint8_t>& to, std::size_t value, int size) {
  for (int i = 0; i < size; ++i) to.push_back(static_cast<std::uint8_t>(value >> 8 * i));
}

/// The first frame of an animated WebP as a file of its own.
std::vector<std::uint8_t> still_webp(const CodecHeader& header) {
  constexpr std::string_view riff = "RIFF", kind = "WEBPVP8X";
  constexpr std::size_t extended_bytes = 10;
  // The frame may contain a chunk with alpha.
  constexpr std::uint8_t may_have_alpha = 0x10;
  std::vector<std::uint8_t> file(riff.begin(), riff.end());
  put_little(file, kind.size() + 4 + extended_bytes + header.first_frame.size(), 4);
  file.insert(file.end(), kind.begin(), kind.end());
  put_little(file, extended_bytes, 4);
  put_little(file, may_have_alpha, 4);
  put_little(file, static_cast<std::size_t>(header.size.width - 1), 3);
  put_little(file, static_cast<std::size_t>(header.size.height - 1), 3);
  file.insert(file.end(), header.first_frame.begin(), header.first_frame.end());
  return file;
}

/// OpenCV turns some kinds of TIFF and not others. It turns none that says it is upright, so Raster can turn all.
std::vector<std::uint8_t> upright_tiff(std::span<const std::uint8_t> bytes, const CodecHeader& header) {
  std::vector<std::uint8_t> file(bytes.begin(), bytes.end());
  const auto at = static_cast<std::size_t>(header.orientation_offset);
  file[at] = header.big_endian ? 0 : 1;
  file[at + 1] = header.big_endian ? 1 : 0;
  return file;
}

}  // namespace

std::string find_imgcodecs_plugin() { return find_plugin(plugin_name); }

std::string check_imgcodecs_plugin() {
  try {
    load_plugin();
    return {};
  } catch (const PictureError& error) {
    return error.what();
  }
}

PictureInfo probe_imgcodecs(std::span<const std::uint8_t> bytes, PictureFormat format, const DecodeLimits& limits) {
  const CodecHeader header = read_codec_header(bytes, format);
  PictureInfo info{.format = format, .orientation = header.orientation};
  plan_raster(info, header.size, limits);
  if (header.data_end > bytes.size()) {
    throw PictureError(Reason::truncated, "the " + std::string(to_string(format)) +
                                              " data end early: " + std::to_string(bytes.size()) + " of " +
                                              std::to_string(header.data_end) + " bytes");
  }
  // still_webp() and upright_tiff() copy the file.
  const std::int64_t file_copy =
      header.orientation > 1 || !header.first_frame.empty() ? static_cast<std::int64_t>(bytes.size()) : 0;
  info.working_bytes =
      std::int64_t{header.bytes_per_pixel} * info.width * info.height + header.buffer_bytes + file_copy;
  check_working_bytes(info, limits, (std::string("decoding a ") + std::string(to_string(format))).c_str());
  // The plug-in wraps the file in a cv::Mat of one row, whose length is an int.
  if (bytes.size() > static_cast<std::size_t>(std::numeric_limits<int>::max()))
    throw PictureError(Reason::too_large, "the file has over 2 GB, more than its codec takes");
  return info;
}

void decode_imgcodecs(std::span<const std::uint8_t> bytes, const PictureInfo& info, std::uint8_t* pixels,
                      std::vector<std::string>& warnings) {
  const CodecHeader header = read_codec_header(bytes, info.format);
  const FileSize size = file_size_of(info);
  if (header.size.width != size.width || header.size.height != size.height) {
    throw PictureError(Reason::changed_since_plan, "the file changed after its header was read");
  }
  // Not in probe: sizes are refused without loading any codec.
  ImgcodecsDecode* const run = load_plugin();
  std::vector<std::uint8_t> rewritten;
  if (!header.first_frame.empty()) rewritten = still_webp(header);
  if (header.orientation > 1 && header.orientation_offset != 0) rewritten = upright_tiff(bytes, header);
  if (!rewritten.empty()) bytes = rewritten;
  Raster raster(info, pixels);
  std::array<char, 256> message{};
  const ImgcodecsResult result = run({.bytes = bytes.data(),
                                      .size = bytes.size(),
                                      .width = size.width,
                                      .height = size.height,
                                      .alpha_counts = info.format != PictureFormat::bmp,
                                      .premultiplied = info.format == PictureFormat::tiff,
                                      .raster = &raster,
                                      .row = [](void* to, int y) { return static_cast<Raster*>(to)->row(y); },
                                      .commit = [](void* to, int end) { static_cast<Raster*>(to)->commit(end); },
                                      .message = message.data(),
                                      .message_size = message.size()});
  if (result != ImgcodecsResult::ok) {
    throw PictureError(reason_of(result), "a " + std::string(to_string(info.format)) + " file: " + message.data());
  }
  if (!header.warning.empty()) warnings.push_back(header.warning);
}

}  // namespace millrace
