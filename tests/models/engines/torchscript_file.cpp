// A file of its own: LibTorch defines a CHECK, which would replace doctest's in the tests.
#include "tests/models/engines/torchscript_file.hpp"

#include <torch/csrc/jit/api/module.h>
#include <torch/script.h>

namespace millrace {

void save_torchscript(const std::filesystem::path& file, const std::string& source, bool half) {
  torch::jit::Module module("Model");
  module.register_parameter("scale", torch::full({1}, 2.0, half ? at::kHalf : at::kFloat), false);
  module.register_buffer("first", torch::tensor(0, at::kLong));
  module.define(source);
  module.save(file.string());
}

}  // namespace millrace
