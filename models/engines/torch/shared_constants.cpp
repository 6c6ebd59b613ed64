#include "models/engines/torch/shared_constants.hpp"

#include <ATen/ops/empty_strided.h>

#include <algorithm>
#include <cstring>
#include <vector>

namespace millrace {

namespace {

using Runner = torch::inductor::AOTIModelContainerRunner;

Constants constants_of(const Runner& runner) {
  const auto by_origin = runner.extract_constants_map(/*use_inactive=*/false);
  Constants constants;
  for (const auto& [name, origin] : runner.getConstantNamesToOriginalFQNs()) {
    if (const auto found = by_origin.find(origin); found != by_origin.end()) constants.emplace(name, found->second);
  }
  return constants;
}

// Whether the runner can be given tensors for all its constants. LibTorch takes them from one device only. A layout of
// oneDNN for a CPU, and values that code computes in its first call, stay with their runner.
bool can_be_shared(const Constants& constants, const Runner& runner) {
  return constants.size() == runner.getConstantNamesToOriginalFQNs().size() &&
         std::all_of(constants.begin(), constants.end(), [&](const auto& one) {
           const at::Tensor& constant = one.second;
           return constant.layout() == at::kStrided && constant.is_non_overlapping_and_dense() &&
                  constant.device() == constants.begin()->second.device();
         });
}

at::Tensor on_host(const at::Tensor& constant) { return constant.to(at::kCPU).contiguous(); }

// Compared on the host, by bytes: a kernel would take NaN for different from itself.
bool equal(const at::Tensor& one, const at::Tensor& other) {
  if (one.device() != other.device() || one.scalar_type() != other.scalar_type() || one.sizes() != other.sizes() ||
      one.strides() != other.strides())
    return false;
  const at::Tensor left = on_host(one), right = on_host(other);
  return left.nbytes() == 0 || std::memcmp(left.data_ptr(), right.data_ptr(), left.nbytes()) == 0;
}

}  // namespace

void use_constants(Constants& constants, Runner& runner) {
  // A runner has two sets of constants, and only the inactive one can be freed. Twice, because run_single_threaded() in
  // LibTorch's model_container.h works with the first set only.
  for (int i = 0; i < 2; ++i) {
    runner.update_constant_buffer(constants, /*use_inactive=*/true, /*validate_full_updates=*/true,
                                  /*user_managed=*/true);
    runner.swap_constant_buffer();
    runner.free_inactive_constant_buffer();
  }
}

Constants SharedConstants::share(Runner& runner) {
  Constants constants = constants_of(runner);
  if (!can_be_shared(constants, runner)) return {};
  std::vector<Constants::value_type*> missing;
  for (Constants::value_type& one : constants) {
    const auto [first, last] = kept_.equal_range(one.first);
    const auto found = std::find_if(first, last, [&](const auto& kept) { return equal(kept.second, one.second); });
    if (found == last) {
      missing.push_back(&one);
    } else {
      one.second = found->second;
    }
  }
  const bool shares = missing.size() < constants.size();
  for (Constants::value_type* one : missing) {
    at::Tensor& constant = one->second;
    // Its memory is that of all constants of the runner, which is about to be freed.
    if (shares)
      constant = at::empty_strided(constant.sizes(), constant.strides(), constant.options()).copy_(on_host(constant));
    kept_.emplace(one->first, constant);
  }
  if (shares) use_constants(constants, runner);
  return constants;
}

}  // namespace millrace
