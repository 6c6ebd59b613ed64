#include "models/engines/torch/compiled_method.hpp"

#include <ATen/ops/cat.h>
#include <c10/core/CachingDeviceAllocator.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "models/package.hpp"

namespace millrace {

CompiledMethod::CompiledMethod(const Method& method, const std::vector<CompiledCall>& calls, int device, int lanes,
                               SharedConstants& shared)
    : device_(device), lanes_(lanes) {
  const Side row = method.outputs.front().shape.front();
  for (const TensorForm& input : method.inputs) by_row_.push_back(input.shape.front() == row);
  for (const CompiledCall& call : calls) {
    Library& library = libraries_.emplace_back(Library{call.rows, call.library.string(), {}});
    first_.push_back(load(library));
    library.constants = shared.share(*first_.back());
  }
}

// On a GPU, a runner for several threads would wait for its last call, or ask whether it has ended. Both are hidden
// waits, and CUDA forbids them while a graph is captured. So each stream has runners of its own.
// The name has the number of the GPU. Otherwise the library would use the one that the calling thread used last.
std::unique_ptr<CompiledMethod::Runner> CompiledMethod::try_to_load(const Library& library) const {
  const bool on_cpu = device_ < 0;
  const std::string kind = on_cpu ? "cpu" : "cuda";
  const auto& makers = torch::inductor::getAOTIModelRunnerRegistry();
  const auto make = makers.find(kind);
  TORCH_CHECK(make != makers.end(), "this LibTorch has no AOTInductor for ", kind);
  return make->second(library.file, on_cpu ? static_cast<std::size_t>(lanes_) : 1,
                      on_cpu ? kind : c10::str(kind, ":", device_), "", /*run_single_threaded=*/!on_cpu);
}

// A library takes memory for its weights from the driver, and its error does not say that there was none. So this looks
// at the memory that is free, and frees what LibTorch keeps for later calls.
std::unique_ptr<CompiledMethod::Runner> CompiledMethod::load(const Library& library) const {
  if (device_ < 0) return try_to_load(library);
  auto* const allocator = c10::getDeviceAllocator(c10::kCUDA);
  const auto free = [&] { return allocator->getMemoryInfo(static_cast<c10::DeviceIndex>(device_)).first; };
  // While it is loaded, there are two copies of its weights, which are nearly all of the file.
  const auto needed = 2 * std::filesystem::file_size(library.file);
  try {
    return try_to_load(library);
  } catch (const std::runtime_error&) {
    if (free() >= needed) throw;
    if (allocator->initialized()) allocator->emptyCache();
  }
  try {
    return try_to_load(library);
  } catch (const std::runtime_error& failure) {
    if (free() >= needed) throw;
    throw std::runtime_error(c10::str("out of memory for the library ", library.file, ": ", free() >> 20,
                                      " MiB of the GPU are free; ", failure.what()));
  }
}

bool CompiledMethod::prepared(void* stream) {
  const std::lock_guard lock(mutex_);
  return runners_.contains(stream);
}

const std::vector<std::unique_ptr<CompiledMethod::Runner>>& CompiledMethod::runners_of(void* stream) {
  const std::lock_guard lock(mutex_);
  const auto found = runners_.find(stream);
  if (found != runners_.end()) return found->second;
  std::vector<std::unique_ptr<Runner>> runners = std::move(first_);
  first_.clear();
  if (runners.empty()) {
    for (Library& library : libraries_) {
      runners.push_back(load(library));
      if (!library.constants.empty()) use_constants(library.constants, *runners.back());
    }
  }
  return runners_.emplace(stream, std::move(runners)).first->second;
}

std::vector<int> CompiledMethod::row_counts() const {
  std::vector<int> counts;
  for (const Library& library : libraries_) counts.push_back(static_cast<int>(library.rows));
  return counts;
}

namespace {

// How often LibTorch's allocator had no memory for a tensor on the GPU of this one. Any lane of the GPU counts.
// It does not count what others could not allocate, such as cuBLAS: such a call fails as with any other error.
std::int64_t times_without_memory(const at::Tensor& tensor) {
  if (!tensor.is_cuda()) return 0;
  return c10::getDeviceAllocator(c10::kCUDA)->getDeviceStats(tensor.get_device()).num_ooms;
}

}  // namespace

// A library checks the shapes of its inputs (AOTI_RUNTIME_CHECK_INPUTS), but only prints what is wrong.
std::vector<at::Tensor> CompiledMethod::run(const Library& library, Runner& runner,
                                            const std::vector<at::Tensor>& inputs, void* stream) {
  const auto message = [&](const std::string& what) {
    return c10::str("the library of the variant for calls of ", library.rows, " rows ", what);
  };
  std::vector<at::Tensor> outputs;
  const std::int64_t before = times_without_memory(inputs.front());
  try {
    outputs = runner.run(inputs, stream);
  } catch (const std::runtime_error&) {  // its text has no reason
    if (times_without_memory(inputs.front()) > before) throw std::runtime_error(message("ran out of memory"));
    const std::string text =
        message("failed; the line above has the reason. If it names a size, compile the package again");
    // On the host, this can be its first call, since no warm-up calls it. No picture is to blame.
    if (inputs.front().is_cpu()) throw PackageError(text);
    throw std::runtime_error(text);
  }
  for (const at::Tensor& output : outputs) {
    if (output.size(0) != library.rows)
      throw PackageError(message(c10::str("returned ", output.size(0), " rows; compile the package again")));
  }
  return outputs;
}

std::vector<at::Tensor> CompiledMethod::call(const std::vector<at::Tensor>& inputs, void* stream) {
  const std::vector<std::unique_ptr<Runner>>& runners = runners_of(stream);
  const auto first = std::find(by_row_.begin(), by_row_.end(), true) - by_row_.begin();
  const std::int64_t rows = inputs[static_cast<std::size_t>(first)].size(0);
  std::vector<std::vector<at::Tensor>> parts;  // by call
  for (std::int64_t done = 0; done < rows;) {
    const auto fits =
        std::find_if(libraries_.begin(), libraries_.end(), [&](const Library& one) { return one.rows >= rows - done; });
    const Library& library = fits == libraries_.end() ? libraries_.back() : *fits;
    const std::int64_t taken = std::min(library.rows, rows - done);
    std::vector<at::Tensor> given;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      at::Tensor input = by_row_[i] ? inputs[i].narrow(0, done, taken) : inputs[i];
      if (by_row_[i] && taken < library.rows) {
        std::vector<std::int64_t> shape = input.sizes().vec();
        shape[0] = library.rows - taken;
        input = at::cat({input, input.narrow(0, taken - 1, 1).expand(shape)});
      }
      // Compiled code takes the strides of a dense tensor for granted. Its kernels for GPUs also read 16 bytes at once, so
      // an input may not begin in between (GPU_ALIGN_BYTES of Inductor). Rows of a larger tensor can.
      input = input.contiguous();
      if (reinterpret_cast<std::uintptr_t>(input.data_ptr()) % 16 != 0) input = input.clone();
      given.push_back(std::move(input));
    }
    parts.push_back(run(library, *runners[static_cast<std::size_t>(&library - libraries_.data())], given, stream));
    for (at::Tensor& output : parts.back()) output = output.narrow(0, 0, taken);
    done += taken;
  }
  if (parts.size() == 1) return std::move(parts.front());
  std::vector<at::Tensor> outputs;
  for (std::size_t i = 0; i < parts.front().size(); ++i) {
    std::vector<at::Tensor> pieces;
    for (const auto& part : parts) pieces.push_back(part[i]);
    outputs.push_back(at::cat(pieces));
  }
  return outputs;
}

}  // namespace millrace
