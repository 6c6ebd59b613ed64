#include "models/engines/torch/prepare_module.hpp"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/passes/frozen_concat_linear.h>
#include <torch/csrc/jit/passes/frozen_graph_optimizations.h>
#include <torch/script.h>

#include <algorithm>
#include <map>

namespace millrace {
namespace {

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

// Makes weights constants of the graphs and folds norms into convolutions.
// torch::jit::freeze would do this for `forward` only. The weights of other methods are freed.
void freeze(torch::jit::Module& module, const std::vector<std::string>& methods, bool channels_last) {
  torch::jit::freeze_module_inplace(&module, methods);
  for (const std::string& method : methods) {
    auto graph = module.get_method(method).graph();
    torch::jit::OptimizeFrozenGraph(graph, true);
    // Freezing may leave some operations on constants. Which ones, differs from process to process.
    torch::jit::ConstantPropagation(graph);
    torch::jit::ConstantPooling(graph);
    if (channels_last) put_channels_last(*graph->block());
    torch::jit::EliminateDeadCode(graph);  // the weights in the other layout
  }
}

}  // namespace

void prepare_module(torch::jit::Module& module, const std::vector<std::string>& methods, const ModuleOptions& options) {
  // The order matters. Freezing turns weights into constants, which convert() does not change.
  module.eval();
  convert(module, options.type);
  if (options.device.is_cpu()) {
    if (options.freeze) freeze(module, methods, options.channels_last);
    return;
  }
  ConstantMover constants(module, options.device);
  if (options.freeze) {
    name_device(module, c10::kCPU);  // freezing computes what depends on constants alone
    freeze(module, methods, options.channels_last);
  }
  // Freezing leaves what the model writes to.
  if (options.device.is_meta()) {
    forget_values(module);
  } else {
    module.to(options.device);
  }
  name_device(module, options.device);
  name_tf32(module, options.tf32);
  constants.move_all(module);
  if (options.device.is_meta() || !options.freeze) return;
  // Joins linear layers of one input. It does so for weights on a GPU only, so it follows the move.
  for (const std::string& method : methods) {
    auto graph = module.get_method(method).graph();
    torch::jit::FrozenConcatLinear(graph);
    torch::jit::EliminateDeadCode(graph);
  }
}

}  // namespace millrace
