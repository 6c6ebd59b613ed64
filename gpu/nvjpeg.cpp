#include "gpu/nvjpeg.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/plugin.hpp"

namespace millrace {
namespace {

// Declared here, because the program is also built without the CUDA Toolkit. Libraries of CUDA 12 and 13 have this interface.
using Handle = void*;
constexpr int success = 0, hardware = 3, interleaved_rgb = 5;
struct Image {
  std::array<unsigned char*, 4> channel;
  std::array<std::size_t, 4> pitch;
};

constexpr const char* advice = "leave decode.nvjpeg out, so that the CPU decodes";

std::string name_of_status(int status) {
  static constexpr std::array names{
      "SUCCESS",           "NOT_INITIALIZED",  "INVALID_PARAMETER", "BAD_JPEG",       "JPEG_NOT_SUPPORTED",
      "ALLOCATOR_FAILURE", "EXECUTION_FAILED", "ARCH_MISMATCH",     "INTERNAL_ERROR", "IMPLEMENTATION_NOT_SUPPORTED"};
  const auto index = static_cast<std::size_t>(status);
  return index < names.size() ? names.at(index) : "status " + std::to_string(status);
}

std::vector<std::string> names_of(const std::string& library) {
  if (!library.empty()) return {library};
  if (const char* own = std::getenv("MILLRACE_NVJPEG"); own != nullptr && *own != '\0') return {own};
  return {"libnvjpeg.so.13", "libnvjpeg.so.12", "/usr/local/cuda/lib64/libnvjpeg.so"};
}

}  // namespace

struct Nvjpeg::Library {
  std::string path;
  void* file = nullptr;
  int (*create)(int backend, void* device_memory, void* pinned_memory, unsigned flags, Handle*) = nullptr;
  int (*destroy)(Handle) = nullptr;
  int (*hardware_info)(Handle, unsigned* engines, unsigned* cores_per_engine) = nullptr;
  int (*state_create)(Handle, Handle* state) = nullptr;
  int (*state_destroy)(Handle state) = nullptr;
  int (*header_create)(Handle, Handle* header) = nullptr;
  int (*header_destroy)(Handle header) = nullptr;
  int (*parse)(Handle, const unsigned char* data, std::size_t size, Handle header) = nullptr;
  int (*dimensions)(Handle header, unsigned* width, unsigned* height) = nullptr;
  int (*supported)(Handle, Handle header, int* reason) = nullptr;  // reason 0: supported
  int (*begin)(Handle, Handle state, int pictures, int threads, int format) = nullptr;
  int (*decode)(Handle, Handle state, const unsigned char* const* data, const std::size_t* sizes, Image* images,
                void* stream) = nullptr;

  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  // The file stays open: nobody says that the library's threads have ended by then.
  ~Library() = default;

  template <class Function>
  void find(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(::dlsym(file, name));
    if (function == nullptr)
      throw PluginError("nvJPEG ('" + path + "') has no function " + name + "; use that of CUDA 12 or 13, or " +
                        advice);
  }

  void open(const std::vector<std::string>& names) {
    std::string reasons;
    for (const std::string& name : names) {
      path = name;
      file = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
      if (file != nullptr) break;
      const char* reason = ::dlerror();
      reasons += (reasons.empty() ? "" : "; ") + std::string(reason == nullptr ? "no reason given" : reason);
    }
    if (file == nullptr)
      throw PluginError("decode.nvjpeg needs nvJPEG, which was not found (" + reasons +
                        "). It is a part of the CUDA Toolkit: set MILLRACE_NVJPEG to the path of its file, or " +
                        advice);
    find(create, "nvjpegCreateEx");
    find(destroy, "nvjpegDestroy");
    find(hardware_info, "nvjpegGetHardwareDecoderInfo");
    find(state_create, "nvjpegJpegStateCreate");
    find(state_destroy, "nvjpegJpegStateDestroy");
    find(header_create, "nvjpegJpegStreamCreate");
    find(header_destroy, "nvjpegJpegStreamDestroy");
    find(parse, "nvjpegJpegStreamParseHeader");
    find(dimensions, "nvjpegJpegStreamGetFrameDimensions");
    find(supported, "nvjpegDecodeBatchedSupported");
    find(begin, "nvjpegDecodeBatchedInitialize");
    find(decode, "nvjpegDecodeBatched");
  }

  void check(int status, const char* function) const {
    if (status == success) return;
    throw PluginError("nvJPEG ('" + path + "') has no JPEG engines (" + function + ": " + name_of_status(status) +
                      "). Only some GPUs have them, such as A100 and H100; " + advice);
  }
};

struct Nvjpeg::Gpu {
  explicit Gpu(const Library& of) : library(of) {}
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() {
    if (handle != nullptr) library.destroy(handle);
  }
  const Library& library;
  Handle handle = nullptr;
};

struct Nvjpeg::Decoder {
  Decoder(const Gpu& of, std::unique_ptr<Stream> own) : gpu(of), stream(std::move(own)) {}
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;
  ~Decoder() {
    if (header != nullptr) gpu.library.header_destroy(header);
    if (state != nullptr) gpu.library.state_destroy(state);
  }

  void start() {
    const Library& library = gpu.library;
    library.check(library.state_create(gpu.handle, &state), "nvjpegJpegStateCreate");
    library.check(library.header_create(gpu.handle, &header), "nvjpegJpegStreamCreate");
  }

  Outcome decode(std::span<const std::uint8_t> file, int width, int height, std::uint8_t* pixels) {
    const Library& library = gpu.library;
    const std::size_t stride = std::size_t{3} * static_cast<std::size_t>(width);
    const std::size_t bytes = stride * static_cast<std::size_t>(height);
    // First, because allocate() also selects the GPU for this thread.
    const std::shared_ptr<void> memory = stream->allocate(bytes);
    unsigned parsed_width = 0, parsed_height = 0;
    int reason = 0;
    if (library.parse(gpu.handle, file.data(), file.size(), header) != success ||
        library.dimensions(header, &parsed_width, &parsed_height) != success ||
        library.supported(gpu.handle, header, &reason) != success || reason != 0)
      return Outcome::refused;
    // The library writes a picture of its size.
    if (std::cmp_not_equal(parsed_width, width) || std::cmp_not_equal(parsed_height, height)) return Outcome::refused;
    Image image{{static_cast<unsigned char*>(memory.get())}, {stride}};
    const unsigned char* data = file.data();
    const std::size_t size = file.size();
    // NVIDIA's own code begins each batch anew. That also resets the state after a failure.
    const bool queued = library.begin(gpu.handle, state, 1, 1, interleaved_rgb) == success &&
                        library.decode(gpu.handle, state, &data, &size, &image, stream->native()) == success;
    if (queued) stream->download(memory.get(), pixels, bytes);
    // The file and the memory must outlive the work, also that of a call that failed halfway.
    stream->wait();
    return queued ? Outcome::decoded : Outcome::failed;
  }

  const Gpu& gpu;
  const std::unique_ptr<Stream> stream;
  Handle state = nullptr, header = nullptr;
};

/// A decoder of this thread. Waits until one is free.
class Nvjpeg::Borrowed {
 public:
  explicit Borrowed(Nvjpeg& of) : of_(of) {
    std::unique_lock lock(of_.mutex_);
    of_.returned_.wait(lock, [&] { return !of_.free_.empty(); });
    // The one that was returned first, so that all GPUs take part.
    decoder_ = of_.free_.front();
    of_.free_.pop_front();
  }
  Borrowed(const Borrowed&) = delete;
  Borrowed& operator=(const Borrowed&) = delete;
  ~Borrowed() {
    {
      const std::lock_guard lock(of_.mutex_);
      of_.free_.push_back(decoder_);
    }
    of_.returned_.notify_one();
  }
  Decoder* operator->() const { return decoder_; }

 private:
  Nvjpeg& of_;
  Decoder* decoder_ = nullptr;
};

Nvjpeg::Nvjpeg(std::unique_ptr<Library> library) : library_(std::move(library)) {}
Nvjpeg::~Nvjpeg() = default;

std::unique_ptr<Nvjpeg> Nvjpeg::open(const std::vector<MakeStream>& gpus, const std::string& library) {
  auto opened = std::make_unique<Library>();
  opened->open(names_of(library));
  std::unique_ptr<Nvjpeg> all(new Nvjpeg(std::move(opened)));
  for (const MakeStream& make_stream : gpus) all->add(make_stream);
  for (const auto& decoder : all->decoders_) all->free_.push_back(decoder.get());
  return all;
}

void Nvjpeg::add(const MakeStream& make_stream) {
  std::unique_ptr<Stream> stream = make_stream();  // first, because it selects the GPU
  auto& gpu = *gpus_.emplace_back(std::make_unique<Gpu>(*library_));
  library_->check(library_->create(hardware, nullptr, nullptr, 0, &gpu.handle), "nvjpegCreateEx");
  unsigned engines = 0, cores = 0;
  library_->check(library_->hardware_info(gpu.handle, &engines, &cores), "nvjpegGetHardwareDecoderInfo");
  if (engines * cores == 0)
    throw PluginError("the GPU has no JPEG engines. Only some GPUs have them, such as A100 and H100; " +
                      std::string(advice));
  for (unsigned i = 0; i < engines * cores; ++i) {
    if (stream == nullptr) stream = make_stream();
    decoders_.emplace_back(std::make_unique<Decoder>(gpu, std::move(stream)))->start();
  }
}

Nvjpeg::Outcome Nvjpeg::decode(std::span<const std::uint8_t> file, int width, int height, std::uint8_t* pixels) {
  const Borrowed decoder(*this);
  try {
    return decoder->decode(file, width, height, pixels);
  } catch (const std::bad_alloc&) {  // of the GPU
    return Outcome::failed;
  } catch (const DeviceError&) {  // a lane meets it too, and ends the run
    return Outcome::failed;
  }
}

}  // namespace millrace
