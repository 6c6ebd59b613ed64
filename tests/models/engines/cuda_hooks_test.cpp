// Opening the plug-in must not ask LibTorch for CUDA. LibTorch keeps the answer that there is none, and its CUDA library
// is opened later, with the first engine on a GPU. A process of its own, because other tests may ask.
#include <ATen/detail/CUDAHooksInterface.h>
#include <doctest/doctest.h>

#include <memory>

#include "models/engines/torch_plugin.hpp"

namespace millrace {
namespace {

/// Takes the place of LibTorch's CUDA library.
struct LateHooks final : at::CUDAHooksInterface {
  bool hasCUDA() const override { return true; }
};

TEST_CASE("LibTorch's CUDA library may be opened after the plug-in") {
  CHECK(!torch_facts().version.empty());
  at::CUDAHooksRegistry()->Register("CUDAHooks", [](at::CUDAHooksArgs) -> std::unique_ptr<at::CUDAHooksInterface> {
    return std::make_unique<LateHooks>();
  });
  CHECK(at::detail::getCUDAHooks().hasCUDA());
}

}  // namespace
}  // namespace millrace
