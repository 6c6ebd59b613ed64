#include "models/engines/torch/torch_engine.hpp"

// LibTorch's headers take 18 s to compile and contain another version of fmt.
// So only the plug-in includes them, and it does not use our fmt.
#include <ATen/Parallel.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/passes/frozen_concat_linear.h>
#include <torch/csrc/jit/passes/frozen_graph_optimizations.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/script.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <new>
#include <optional>

#include "gpu/stream.hpp"
#include "models/engines/torch/compiled_method.hpp"

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

// Converts weights to the type of the run. A package may store them in 16 bits, to be small.
// Constants of graphs keep their type, so exporters make constants of values that must stay in float32.
void convert(const torch::jit::Module& module, c10::ScalarType type) {
  const auto converted = [&](at::Tensor tensor) {
    if (tensor.is_floating_point() && tensor.scalar_type() != type) tensor.set_data(tensor.to(type));
  };
  for (at::Tensor parameter : module.parameters()) {
    converted(parameter);
    // Freezing makes a new tensor of each trainable weight in each graph, and each would be copied to a GPU.
    parameter.set_requires_grad(false);
  }
  for (at::Tensor buffer : module.buffers()) converted(buffer);
}

// For `shapes_only`: tensors on the meta device have shapes but no values.
void forget_values(const torch::jit::Module& module) {
  for (torch::jit::Module part : module.modules()) {
    // false: only its own weights, because modules() lists all parts.
    for (const auto& weight : part.named_parameters(false)) part.setattr(weight.name, weight.value.to(c10::kMeta));
    for (const auto& buffer : part.named_buffers(false)) part.setattr(buffer.name, buffer.value.to(c10::kMeta));
  }
}

template <class Visit>
void each_node(torch::jit::Block& block, const Visit& visit) {
  for (torch::jit::Node* node : block.nodes()) {
    for (torch::jit::Block* inner : node->blocks()) each_node(*inner, visit);
    if (node->hasAttribute(c10::attr::Subgraph)) each_node(*node->g(c10::attr::Subgraph)->block(), visit);
    visit(*node);
  }
}

template <class Visit>
void each_node(const torch::jit::Module& module, const Visit& visit) {
  for (const torch::jit::Module& part : module.modules()) {
    for (const auto& method : part.get_methods()) each_node(*method.graph()->block(), visit);
  }
}

bool is_constant(const torch::jit::Node& node) {
  return node.kind() == c10::prim::Constant && node.hasAttribute(c10::attr::value);
}

// Functions such as torch.arange compute on the device that the trace names.
void name_device(const torch::jit::Module& module, c10::Device device) {
  each_node(module, [&](torch::jit::Node& node) {
    if (is_constant(node) && node.output()->type() == c10::DeviceObjType::get())
      node.s_(c10::attr::value, device.str());
  });
}

// A trace also says whether convolutions may round to TF32.
void name_tf32(const torch::jit::Module& module, bool tf32) {
  const auto convolution = c10::Symbol::fromQualString("aten::_convolution");
  // The older form of this operator has 12 inputs and no allow_tf32.
  constexpr std::size_t convolution_inputs = 13, allow_tf32 = 12;
  each_node(module, [&](torch::jit::Node& node) {
    if (node.kind() != convolution || node.inputs().size() != convolution_inputs) return;
    // The constant must be before the node that uses it.
    const torch::jit::WithInsertPoint before(&node);
    node.replaceInput(allow_tf32, node.owningGraph()->insertConstant(tf32));
  });
}

// Moves the constant tensors of a module to a device.
// Single whole numbers stay on the CPU, because they are sizes: each read of one from a GPU would wait for the GPU.
// But those move that the module had as buffers. Make this object before freezing: that turns buffers into constants.
class ConstantMover {
 public:
  ConstantMover(const torch::jit::Module& module, c10::Device device) : device_(device) {
    for (const at::Tensor& buffer : module.buffers()) buffers_.push_back(buffer);
  }

  void move_all(const torch::jit::Module& module) {
    each_node(module, [&](torch::jit::Node& node) {
      if (!is_constant(node)) return;
      if (node.kindOf(c10::attr::value) == torch::jit::AttributeKind::t) {
        node.t_(c10::attr::value, moved(node.t(c10::attr::value)));
      } else if (node.kindOf(c10::attr::value) == torch::jit::AttributeKind::ival) {
        node.ival_(c10::attr::value, moved(node.ival(c10::attr::value)));
      }
    });
  }

 private:
  c10::IValue moved(const c10::IValue& value) {
    if (value.isTensor()) return moved(value.toTensor());
    if (value.isTensorList()) {
      c10::List<at::Tensor> all;
      for (const at::Tensor& tensor : value.toTensorVector()) all.push_back(moved(tensor));
      return all;
    }
    if (value.isTuple()) {
      std::vector<c10::IValue> all;
      for (const c10::IValue& element : value.toTupleRef().elements()) all.push_back(moved(element));
      return c10::ivalue::Tuple::create(std::move(all));
    }
    return value;
  }

  // A tensor that several graphs use is copied once.
  at::Tensor moved(const at::Tensor& tensor) {
    const bool number = tensor.dim() == 0 && c10::isIntegralType(tensor.scalar_type(), false);
    if (number && std::ranges::none_of(buffers_, [&](const at::Tensor& one) { return one.is_same(tensor); }))
      return tensor.cpu();
    const auto [place, added] = moved_.try_emplace(tensor.unsafeGetTensorImpl());
    if (added) place->second = {tensor, tensor.to(device_)};
    return place->second.copy;
  }

  const c10::Device device_;
  std::vector<at::Tensor> buffers_;
  struct Moved {
    at::Tensor original;  // kept, because a new tensor at its address would look like it
    at::Tensor copy;
  };
  std::map<const c10::TensorImpl*, Moved> moved_;
};

// Stores the weights of convolutions with channels last. Then LibTorch computes each convolution in that layout, also if
// its input is in planes, and the next layer gets its input with channels last. Convolutions are faster in that layout:
// on two cores of an EPYC, YOLOv8n took 31 ms instead of 42, MobileSAM's encoder 484 ms instead of 575.
// Only for frozen graphs, whose weights are constants. The weights of transposed convolutions stay as they are.
void put_channels_last(torch::jit::Block& block) {
  const auto convolution = c10::Symbol::fromQualString("aten::_convolution");
  constexpr std::size_t weight = 1, transposed = 6;
  for (torch::jit::Node* node : block.nodes()) {
    for (torch::jit::Block* inner : node->blocks()) put_channels_last(*inner);
    const bool plain = node->kind() == c10::aten::conv2d ||
                       (node->kind() == convolution && torch::jit::constant_as<bool>(node->input(transposed)) == false);
    if (!plain) continue;
    const auto constant = torch::jit::constant_as<at::Tensor>(node->input(weight));
    if (!constant || constant->dim() != 4) continue;
    const torch::jit::WithInsertPoint before(node);
    node->replaceInput(weight,
                       node->owningGraph()->insertConstant(constant->contiguous(c10::MemoryFormat::ChannelsLast)));
  }
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
        image_type_(millrace::image_type(options.precision)) {
    // First, because LibTorch knows no GPU before this library is open.
    if (options.device >= 0) load_cuda();
    fix_process_settings();
    // For the whole process. Convolutions of a trace have a setting of their own (name_tf32).
    at::globalContext().setAllowTF32CuBLAS(options.precision == Precision::tf32);
    at::globalContext().setAllowTF32CuDNN(options.precision == Precision::tf32);
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
      // The order matters. Freezing turns weights into constants, which convert() does not change.
      module_.eval();
      convert(module_, scalar_type(image_type_));
      for (const std::string& method : scripted) {
        if (!module_.find_method(method))
          throw error("model.ts has no method '", method, "'; it needs ", c10::Join(", ", methods_));
      }
      if (device.is_cpu()) {
        if (options.freeze) freeze(module_, scripted);
        return;
      }
      ConstantMover constants(module_, device);
      if (options.freeze) {
        name_device(module_, c10::kCPU);  // freezing computes what depends on constants alone
        freeze(module_, scripted);
      }
      // Freezing leaves what the model writes to.
      if (device.is_meta()) {
        forget_values(module_);
      } else {
        module_.to(device);
      }
      name_device(module_, device);
      name_tf32(module_, options.precision == Precision::tf32);
      constants.move_all(module_);
      if (!device.is_cuda()) return;
      if (options.freeze) {
        // Joins linear layers of one input. It does so for weights on a GPU only, so it follows the move.
        for (const std::string& method : scripted) {
          auto graph = module_.get_method(method).graph();
          torch::jit::FrozenConcatLinear(graph);
          torch::jit::EliminateDeadCode(graph);
        }
      }
      finish_all(options.device);
    });
    name_ = model.name;
  }

  TorchEngine(const TorchEngine&) = delete;
  TorchEngine& operator=(const TorchEngine&) = delete;
  ~TorchEngine() override {
    try {
      if (device_ >= 0) finish_all(device_);
    } catch (const std::exception&) {  // the device is lost; the next wait reports that
    }
  }

  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override {
    set_team_of_this_thread(threads_);
    return guarded(method, inputs, [&] {
      // Both guards are settings of the thread, and several lanes share an engine. So each call sets them.
      // They live until wrap() returns, because it may convert or copy outputs, on the lane's stream.
      const c10::InferenceMode inference;
      const OnStream on_stream(device);
      if (const auto compiled = compiled_.find(method); compiled != compiled_.end()) {
        std::vector<at::Tensor> given;
        for (const Tensor& input : inputs) given.push_back(borrow(input));
        return wrap(method, compiled->second.call(given, native_of(device)));
      }
      std::vector<c10::IValue> arguments;
      arguments.reserve(inputs.size());
      for (const Tensor& input : inputs) arguments.emplace_back(borrow(input));
      const auto function = module_.find_method(std::string(method));
      if (!function) throw error("has no method '", method, "'; its methods are ", c10::Join(", ", methods_));
      return wrap(method, (*function)(std::move(arguments)));
    });
  }

  DType image_type() const override { return image_type_; }
  std::int64_t memory_bytes() const override { return model_.bytes; }
  void trim() override {
    if (device_ >= 0) c10::getDeviceAllocator(c10::kCUDA)->emptyCache();
  }

 private:
  // Makes weights constants of the graphs and folds norms into convolutions.
  // torch::jit::freeze would do this for `forward` only. The weights of other methods are freed.
  static void freeze(torch::jit::Module& module, const std::vector<std::string>& methods) {
    torch::jit::freeze_module_inplace(&module, methods);
    for (const std::string& method : methods) {
      auto graph = module.get_method(method).graph();
      torch::jit::OptimizeFrozenGraph(graph, true);
      put_channels_last(*graph->block());
      torch::jit::EliminateDeadCode(graph);  // the weights in the other layout
    }
  }

  void load_variant(const Variant& variant, const EngineOptions& options) {
    for (const auto& [name, calls] : variant.methods) {
      const auto method = std::find_if(model_.methods.begin(), model_.methods.end(),
                                       [name = name](const Method& one) { return one.name == name; });
      compiled_.try_emplace(name, *method, calls, options.device >= 0 ? "cuda" : "cpu", options.lanes);
    }
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
  DType image_type_;
  torch::jit::Module module_;
  std::map<std::string, CompiledMethod, std::less<>> compiled_;
};

}  // namespace

std::shared_ptr<Engine> make_torch_engine(const TorchModel& model, const EngineOptions& options) {
  return std::make_shared<TorchEngine>(model, options);
}

}  // namespace millrace
