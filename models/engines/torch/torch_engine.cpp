#include "models/engines/torch/torch_engine.hpp"

// LibTorch's headers take 18 s to compile and contain another version of fmt.
// So only the plug-in includes them, and it does not use our fmt.
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <optional>

#include "gpu/stream.hpp"
#include "models/engines/torch/compiled_method.hpp"
#include "models/engines/torch/graphed_calls.hpp"
#include "models/engines/torch/prepare_module.hpp"

namespace millrace {
namespace {

c10::ScalarType scalar_type(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return c10::kFloat;
    case DType::f16:
      return c10::kHalf;
    case DType::bf16:
      return c10::kBFloat16;
    case DType::i64:
      return c10::kLong;
    case DType::i32:
      return c10::kInt;
    case DType::u8:
      return c10::kByte;
  }
  throw std::invalid_argument("not a DType");
}

std::optional<DType> dtype_of(c10::ScalarType type) {
  switch (type) {
    case c10::kFloat:
      return DType::f32;
    case c10::kHalf:
      return DType::f16;
    case c10::kBFloat16:
      return DType::bf16;
    case c10::kLong:
      return DType::i64;
    case c10::kInt:
      return DType::i32;
    case c10::kByte:
      return DType::u8;
    default:
      return std::nullopt;
  }
}

// The error itself, without LibTorch's stack traces: that of TorchScript comes before it, that of C++ after it.
std::string what_happened(std::string_view message) {
  message = message.substr(0, message.find("\nException raised from"));
  constexpr std::string_view arrow = "<--- HERE", kind = "Error: ";
  if (const std::size_t trace = message.rfind(arrow); trace != std::string_view::npos) {
    if (const std::size_t at = message.find(kind, trace); at != std::string_view::npos)
      message.remove_prefix(at + kind.size());
  }
  while (message.ends_with('\n')) message.remove_suffix(1);
  return std::string(message);
}

void fix_process_settings() {
  // Several lanes load engines, but LibTorch accepts the first of these settings only once per process.
  static std::once_flag once;
  std::call_once(once, [] {
    at::set_num_interop_threads(1);
    // The profiling executor records shapes in the first calls, then runs a graph made for them.
    // Results would depend on the number and the shapes of earlier calls, and they must not.
    torch::jit::getProfilingMode() = false;
    // On a GPU, cuDNN's attention would make a plan in the first call with each number of boxes, on each thread.
    at::globalContext().setSDPUseCuDNN(false);
  });
}

void set_team_of_this_thread(int threads) {
  // OpenMP keeps the team size per thread, so each lane sets it, once.
  thread_local int team = 0;
  if (team == threads) return;
  at::set_num_threads(threads);
  team = threads;
}

// Waits for all streams of the device. Loading runs outside of the lanes' streams, so it waits before lanes read the
// weights. The destructor waits before it frees them.
void finish_all(int device) {
  c10::impl::VirtualGuardImpl(c10::kCUDA).synchronizeDevice(static_cast<c10::DeviceIndex>(device));
}

// LibTorch's CUDA part is a library of its own, opened only for a GPU.
// So one program serves machines with and without a GPU.
void load_cuda() {
  // Once per process: several lanes may load engines at the same time.
  static std::once_flag once;
  std::call_once(once, [] {
    if (::dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
      throw ModelError(c10::str("this LibTorch cannot use a GPU: ", ::dlerror(),
                                "; use --device cpu, or run with the LibTorch of a PyTorch for CUDA"));
    }
  });
}

c10::Device device_of(int device) {
  if (device == shapes_only) return c10::Device(c10::kMeta);
  return device < 0 ? c10::Device(c10::kCPU) : c10::Device(c10::kCUDA, static_cast<c10::DeviceIndex>(device));
}

// LibTorch's view of our tensor. It keeps the storage alive, because a model may return its input, or a view of it.
at::Tensor borrow(const Tensor& tensor) {
  const auto options = at::TensorOptions(scalar_type(tensor.dtype)).device(device_of(tensor.device));
  if (tensor.device == shapes_only) return at::empty(tensor.shape, options);
  return at::from_blob(
      tensor.data, tensor.shape, [keep = tensor.storage](void*) {}, options);
}

// While this object lives, LibTorch works on the lane's stream.
// The id of a stream that LibTorch did not make is its CUDA handle (c10/cuda/CUDAStream.cpp, getStreamFromExternal).
// That function itself is not used, since its headers would make the plug-in depend on CUDA.
class OnStream {
 public:
  explicit OnStream(Device& device) {
    const Stream* stream = device.stream();
    if (stream == nullptr || stream->native() == nullptr) return;
    guard_.emplace(c10::Stream(c10::Stream::UNSAFE, device_of(stream->device()),
                               reinterpret_cast<c10::StreamId>(stream->native())));
  }

 private:
  std::optional<c10::StreamGuard> guard_;
};

// A setting of the whole process. The engines of a run have the same; those of a profile take turns on one thread.
// Convolutions of a trace have a setting of their own (name_tf32).
void allow_tf32(bool allowed) {
  at::Context& context = at::globalContext();
  if (context.allowTF32CuBLAS() != allowed) context.setAllowTF32CuBLAS(allowed);
  if (context.allowTF32CuDNN() != allowed) context.setAllowTF32CuDNN(allowed);
}

std::vector<std::string> names_of(const std::vector<Method>& methods) {
  std::vector<std::string> names;
  for (const Method& method : methods) names.push_back(method.name);
  return names;
}

class TorchEngine final : public Engine {
 public:
  TorchEngine(const TorchModel& model, const EngineOptions& options)
      : name_(model.folder),
        methods_(names_of(model.methods)),
        model_(model),
        threads_(options.threads),
        device_(options.device),
        tf32_(options.precision == Precision::tf32),
        graphs_(options.device >= 0 ? options.graphs : nullptr),
        image_type_(millrace::image_type(options.precision)) {
    // First, because LibTorch knows no GPU before this library is open.
    if (options.device >= 0) load_cuda();
    fix_process_settings();
    allow_tf32(tf32_);
    set_team_of_this_thread(threads_);
    guarded("load", {}, [&] {
      if (model.variant) load_variant(*model.variant, options);
      std::vector<std::string> scripted;  // the methods that are left for TorchScript
      for (const std::string& method : methods_) {
        if (compiled_.count(method) == 0) scripted.push_back(method);
      }
      if (scripted.empty()) return;
      const c10::Device device = device_of(options.device);
      // Onto the CPU, also for a GPU: loading and freezing compare the values of tensors.
      // On a GPU, each comparison is a kernel and a wait, tens of thousands in all.
      module_ = torch::jit::load(model.file.string(), c10::kCPU);
      for (const std::string& method : scripted) {
        if (!module_.find_method(method))
          throw error("model.ts has no method '", method, "'; it needs ", c10::Join(", ", methods_));
      }
      prepare_module(module_, scripted,
                     {.type = scalar_type(image_type_),
                      .device = device,
                      .tf32 = tf32_,
                      .freeze = options.freeze,
                      .channels_last = options.channels_last});
      if (device.is_cuda()) finish();
    });
    name_ = model.name;
  }

  TorchEngine(const TorchEngine&) = delete;
  TorchEngine& operator=(const TorchEngine&) = delete;
  ~TorchEngine() override {
    try {
      if (device_ >= 0) finish();
    } catch (const std::exception&) {  // the device is lost; the next wait reports that
    }
  }

  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override {
    set_team_of_this_thread(threads_);
    allow_tf32(tf32_);
    return guarded(method, inputs, [&] {
      // Both guards are settings of the thread, and several lanes share an engine. So each call sets them.
      // They live until wrap() returns, because it may convert or copy outputs, on the lane's stream.
      const c10::InferenceMode inference;
      const OnStream on_stream(device);
      void* const stream = native_of(device);
      const auto compute = [&](const std::vector<at::Tensor>& given) {
        if (const auto compiled = compiled_.find(method); compiled != compiled_.end())
          return wrap(method, compiled->second.call(given, stream));
        const auto function = module_.find_method(std::string(method));
        if (!function) throw error("has no method '", method, "'; its methods are ", c10::Join(", ", methods_));
        return wrap(method, (*function)(std::vector<c10::IValue>(given.begin(), given.end())));
      };
      std::vector<at::Tensor> given;
      given.reserve(inputs.size());
      for (const Tensor& input : inputs) given.push_back(borrow(input));
      if (graphs_ == nullptr || graphs_->paused) return compute(given);
      if (const auto compiled = compiled_.find(method);
          compiled != compiled_.end() && !compiled->second.prepared(stream)) {
        const auto lock = no_captures();
        compiled->second.prepare(stream);
      }
      return graphs_of(stream).call(c10::str(name_, ": ", method), given, compute);
    });
  }

  std::vector<int> row_counts(std::string_view method) const override {
    const auto compiled = compiled_.find(method);
    return compiled == compiled_.end() ? std::vector<int>{} : compiled->second.row_counts();
  }
  DType image_type() const override { return image_type_; }
  std::int64_t memory_bytes() const override { return model_.bytes; }
  void trim() override {
    c10::DeviceAllocator* const allocator = this->allocator();
    if (allocator == nullptr) return;
    const auto lock = no_captures();
    allocator->emptyCache();
    allocator->resetPeakStats(static_cast<c10::DeviceIndex>(device_));
  }
  TorchMemory torch_memory() const override {
    c10::DeviceAllocator* const allocator = this->allocator();
    if (allocator == nullptr) return {};
    const auto stats = allocator->getDeviceStats(static_cast<c10::DeviceIndex>(device_));
    const auto all = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    return {stats.reserved_bytes[all].current, stats.allocated_bytes[all].peak};
  }

 private:
  // Until the lock is gone, no lane captures.
  std::unique_lock<std::mutex> no_captures() const {
    return graphs_ == nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(*graphs_->captures);
  }
  void finish() const {
    const auto lock = no_captures();
    finish_all(device_);
  }

  // That of the GPU; null on the CPU, and before LibTorch has used a GPU.
  c10::DeviceAllocator* allocator() const {
    if (device_ < 0) return nullptr;
    auto* const allocator = c10::getDeviceAllocator(c10::kCUDA);
    return allocator->initialized() ? allocator : nullptr;
  }

  void load_variant(const Variant& variant, const EngineOptions& options) {
    const auto lock = no_captures();  // libraries free memory when they share weights
    SharedConstants shared;
    for (const auto& [name, calls] : variant.methods) {
      const auto method = std::find_if(model_.methods.begin(), model_.methods.end(),
                                       [name = name](const Method& one) { return one.name == name; });
      compiled_.try_emplace(name, *method, calls, options.device, options.lanes, shared);
    }
    if (options.device >= 0) finish_all(options.device);
  }

  GraphedCalls& graphs_of(void* stream) {
    const std::lock_guard lock(graphed_mutex_);
    return graphed_.try_emplace(stream, graphs_).first->second;
  }

  static void* native_of(Device& device) { return device.stream() == nullptr ? nullptr : device.stream()->native(); }

  std::vector<Tensor> wrap(std::string_view method, const std::vector<at::Tensor>& results) const {
    std::vector<Tensor> outputs;
    for (const at::Tensor& result : results) outputs.push_back(wrap_one(method, outputs.size(), result));
    return outputs;
  }

  std::vector<Tensor> wrap(std::string_view method, const c10::IValue& result) const {
    std::vector<Tensor> outputs;
    if (result.isTensor()) {
      outputs.push_back(wrap_one(method, 0, result.toTensor()));
    } else if (result.isTuple()) {
      for (const c10::IValue& element : result.toTupleRef().elements()) {
        if (!element.isTensor()) throw not_tensors(method, element);
        outputs.push_back(wrap_one(method, outputs.size(), element.toTensor()));
      }
    } else {
      throw not_tensors(method, result);
    }
    return outputs;
  }

  ModelError not_tensors(std::string_view method, const c10::IValue& value) const {
    return error(method, ": expected a tensor or a tuple of tensors, got ", value.tagKind(),
                 "; export the model again");
  }

  // Outputs that are declared with the type of pictures, such as embeddings, go back into the model.
  // Millrace reads all others, so they become f32.
  bool stays_in_model(std::string_view method, std::size_t output) const {
    for (const Method& one : model_.methods) {
      if (one.name == method) return output < one.outputs.size() && !one.outputs[output].dtype;
    }
    return false;
  }

  Tensor wrap_one(std::string_view method, std::size_t index, at::Tensor output) const {
    if (output.is_floating_point() && output.scalar_type() == scalar_type(image_type_) &&
        !stays_in_model(method, index))
      output = output.to(c10::kFloat);
    const auto dtype = dtype_of(output.scalar_type());
    if (!dtype)
      throw error(method, ": returned a tensor of type ", c10::toString(output.scalar_type()),
                  ", which is not supported; convert it in the model and export it again");
    // contiguous() copies only if the tensor is not dense.
    auto kept = std::make_shared<at::Tensor>(output.contiguous());
    Tensor tensor;
    tensor.data = kept->is_meta() ? nullptr : kept->data_ptr();
    tensor.shape = kept->sizes().vec();
    tensor.dtype = *dtype;
    tensor.device = kept->is_meta() ? shapes_only : kept->is_cuda() ? kept->get_device() : -1;
    // LibTorch's tensor owns the memory. It lives as long as a tensor of ours uses it.
    tensor.storage = std::move(kept);
    return tensor;
  }

  template <class... Parts>
  ModelError error(const Parts&... parts) const {
    return ModelError(c10::str(name_, ": ", parts...));
  }

  // Turns every error of LibTorch into one of ours, which names model, method and shapes.
  template <class Work>
  auto guarded(std::string_view what, std::span<const Tensor> inputs, Work&& work) const -> decltype(work()) {
    const auto where = [&] {
      std::string shapes;
      for (const Tensor& input : inputs) shapes += c10::str(" ", c10::IntArrayRef(input.shape));
      return c10::str(name_, ": ", what, shapes);
    };
    try {
      return work();
    } catch (const ModelError&) {
      throw;
    } catch (const DeviceError&) {
      throw;
    } catch (const PackageError& failure) {
      throw PackageError(c10::str(model_.folder, ": ", what, ": ", failure.what()));
    } catch (const c10::OutOfMemoryError& failure) {
      throw OutOfMemoryError(where() + ": out of memory: " + what_happened(failure.what_without_backtrace()));
    } catch (const std::bad_alloc&) {
      throw OutOfMemoryError(where() + ": out of memory");
    } catch (const std::exception& failure) {
      // TorchScript turns errors of operators into std::runtime_error. Then only the text tells what failed.
      const auto* torch_error = dynamic_cast<const c10::Error*>(&failure);
      const std::string text = what_happened(torch_error ? torch_error->what_without_backtrace() : failure.what());
      if (says_out_of_memory(text)) throw OutOfMemoryError(where() + ": out of memory: " + text);
      if (says_device_failed(text)) throw DeviceError(where() + ": " + text);
      throw ModelError(where() + ": " + text);
    }
  }

  // In messages: the folder during loading, then the package's name, since messages of calls are written to segments.
  std::string name_;
  std::vector<std::string> methods_;
  TorchModel model_;
  int threads_;
  int device_;
  const bool tf32_;
  const std::shared_ptr<GraphUse> graphs_;  // null: calls are plain
  DType image_type_;
  torch::jit::Module module_;
  std::map<std::string, CompiledMethod, std::less<>> compiled_;
  std::mutex graphed_mutex_;
  std::map<void*, GraphedCalls> graphed_;  // by stream: a lane's own, so only the map is shared
};

}  // namespace

std::shared_ptr<Engine> make_torch_engine(const TorchModel& model, const EngineOptions& options) {
  return std::make_shared<TorchEngine>(model, options);
}

}  // namespace millrace
