#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "gpu/stream.hpp"

namespace millrace {

/// The JPEG engines of GPUs, through NVIDIA's library nvJPEG. It is opened at run time, because few machines have it.
/// Engines have cores, and a core decodes one picture at a time. There is one decoder for each core, with a stream of
/// its own, because engines become slow with more pictures than cores.
class Nvjpeg {
 public:
  using MakeStream = std::function<std::unique_ptr<Stream>()>;
  enum class Outcome {
    decoded,
    refused,  ///< engines do not decode files of this kind
    failed    ///< the library or a copy failed, or the memory of the GPU is used up
  };

  /// Opens `library`; if it is empty, the one that MILLRACE_NVJPEG names, or the first of the usual names.
  /// `gpus` has a function for each GPU. It makes streams on it, and selects the GPU for the calling thread.
  /// Throws PluginError if there is no library, or a GPU without engines.
  static std::unique_ptr<Nvjpeg> open(const std::vector<MakeStream>& gpus, const std::string& library = {});
  Nvjpeg(const Nvjpeg&) = delete;
  Nvjpeg& operator=(const Nvjpeg&) = delete;
  ~Nvjpeg();

  /// Number of pictures that are decoded at a time.
  [[nodiscard]] int decoders() const { return static_cast<int>(decoders_.size()); }

  /// Decodes a JPEG file into `pixels`: RGB, 8 bits a channel, rows without padding, 3 x width x height bytes.
  /// `width` and `height` are those of the file. It ignores EXIF. Waits for a free decoder.
  /// If the file was not decoded, `pixels` may hold anything. Any thread may call it.
  Outcome decode(std::span<const std::uint8_t> file, int width, int height, std::uint8_t* pixels);

 private:
  struct Library;
  struct Gpu;
  struct Decoder;
  class Borrowed;
  explicit Nvjpeg(std::unique_ptr<Library> library);
  void add(const MakeStream& make_stream);

  const std::unique_ptr<Library> library_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::vector<std::unique_ptr<Decoder>> decoders_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::deque<Decoder*> free_;
};

}  // namespace millrace
