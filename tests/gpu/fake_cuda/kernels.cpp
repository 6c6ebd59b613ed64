#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>

#include "gpu/ops/find_boxes.hpp"
#include "gpu/ops/letterbox.hpp"
#include "gpu/ops/outline.hpp"
#include "tests/gpu/fake_cuda/runtime.hpp"

// In place of the kernels of gpu/ops/*.cu and cuda_stream.cu, their bodies run here for all elements.
// The grid of a launch must cover them.
namespace millrace {
namespace {

template <class T>
const T& argument(void** arguments, int index) {
  return *static_cast<const T*>(arguments[index]);
}

/// The size of a grid along one axis.
struct Axis {
  std::int64_t least = 1;
  bool exactly = true;  ///< the kernel does not check this index
};
Axis at_least(std::int64_t least) { return {least, false}; }
Axis exactly(std::int64_t size) { return {size, true}; }

/// Ends the process unless the grid has as many threads along each axis.
void check_grid(std::string_view kernel, const fake_cuda::Grid& grid, Axis x, Axis y = {}, Axis z = {}) {
  const auto fits = [](const Axis& axis, unsigned blocks, unsigned threads) {
    const std::int64_t all = std::int64_t{blocks} * threads;
    return axis.exactly ? all == axis.least : all >= axis.least;
  };
  if (fits(x, grid.blocks.x, grid.threads.x) && fits(y, grid.blocks.y, grid.threads.y) &&
      fits(z, grid.blocks.z, grid.threads.z))
    return;
  std::fprintf(stderr,
               "fake CUDA: kernel '%.*s' needs %lld x %lld x %lld threads, but its launch has %u x %u x %u blocks of "
               "%u x %u x %u\n",
               static_cast<int>(kernel.size()), kernel.data(), static_cast<long long>(x.least),
               static_cast<long long>(y.least), static_cast<long long>(z.least), grid.blocks.x, grid.blocks.y,
               grid.blocks.z, grid.threads.x, grid.threads.y, grid.threads.z);
  std::abort();
}

/// CUB's only kernel that matters here: sums of all values before each one.
void exclusive_sum(void** arguments) {
  const auto* in = argument<const std::uint32_t*>(arguments, 0);
  std::exclusive_scan(in, in + argument<std::uint32_t>(arguments, 6), argument<std::uint32_t*>(arguments, 1), 0U);
}

/// Returns false for a name that is not in this list.
bool run(std::string_view kernel, const fake_cuda::Grid& grid, void** arguments) {
  if (kernel == "store_parcel") {
    const int bytes = argument<int>(arguments, 2);
    check_grid(kernel, grid, at_least(bytes));
    std::memcpy(argument<void*>(arguments, 1), arguments[0], static_cast<std::size_t>(bytes));
  } else if (kernel == "fill_taps") {
    const auto& job = argument<LetterboxJob>(arguments, 0);
    check_grid(kernel, grid, at_least(job.longest_axis), exactly(2), exactly(job.count));
    for (int i = 0; i < job.count; ++i) letterbox_kernel::fill_all_taps(job.rows[i]);
  } else if (kernel.starts_with("letterbox<")) {
    const auto& job = argument<LetterboxJob>(arguments, 0);
    check_grid(kernel, grid, at_least(job.width), at_least(job.height), exactly(job.count));
    for (int i = 0; i < job.count; ++i) letterbox_kernel::fill_input(job.rows[i]);
  } else if (kernel == "find_candidates") {
    const auto& job = argument<HeadJob>(arguments, 0);
    check_grid(kernel, grid, at_least(job.candidates), exactly(job.slots));
    for (int slot = 0; slot < job.slots; ++slot) {
      for (int i = 0; i < job.candidates; ++i) job.faults[slot] |= find_boxes_kernel::find_candidate(job, slot, i);
    }
  } else if (kernel == "keep_best") {
    const auto& job = argument<HeadJob>(arguments, 0);
    check_grid(kernel, grid, exactly(std::int64_t{job.slots} * grid.threads.x));  // a block for each slot
    for (int slot = 0; slot < job.slots; ++slot)
      find_boxes_kernel::keep_best(job, slot, find_boxes_kernel::OneThread{});
  } else if (kernel == "largest_magnitude") {
    const auto& job = argument<OutlineJob>(arguments, 0);
    check_grid(kernel, grid, exactly(std::int64_t{job.masks} * grid.threads.x));  // a block for each mask
    for (int n = 0; n < job.masks; ++n) job.largest[n] = outline_kernel::largest_magnitude(job, n);
  } else if (kernel == "count_changes" || kernel == "write_changes") {
    const auto& job = argument<OutlineJob>(arguments, 0);
    check_grid(kernel, grid, at_least(job.widest), exactly(job.masks));
    outline_kernel::for_each_column(
        job, kernel == "count_changes" ? outline_kernel::count_column : outline_kernel::write_column);
  } else {
    return false;
  }
  return true;
}

}  // namespace
}  // namespace millrace

std::uint64_t fake_cuda::run_kernel(std::string_view name, const Grid& grid, void** arguments) {
  constexpr std::string_view own = "millrace::(anonymous namespace)::";
  // LibTorch has a copy of CUB in a namespace of its own.
  if (name.find("DeviceScanKernel") != std::string_view::npos &&
      name.find("at_cuda_detail") == std::string_view::npos) {
    millrace::exclusive_sum(arguments);
    return 0;
  }
  const auto begin = name.find(own);
  if (begin == std::string_view::npos) return 0;
  name.remove_prefix(begin + own.size());
  name = name.substr(0, name.find('('));
  if (name == "idle_for") return millrace::argument<std::uint64_t>(arguments, 0);
  if (!millrace::run(name, grid, arguments)) {
    std::fprintf(stderr, "fake CUDA: kernel '%.*s' has no row in tests/gpu/fake_cuda/kernels.cpp\n",
                 static_cast<int>(name.size()), name.data());
    std::abort();
  }
  return 0;
}
