#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <string_view>

#include "gpu/ops/blend_windows.hpp"
#include "gpu/ops/cut_windows.hpp"
#include "gpu/ops/find_boxes.hpp"
#include "gpu/ops/finish_rows.hpp"
#include "gpu/ops/letterbox.hpp"
#include "gpu/ops/outline.hpp"
#include "tests/gpu/fake_cuda/runtime.hpp"

// In place of the kernels of gpu/ops/*.cu and cuda_stream.cu, their bodies run here for all elements.
// The grid of a launch must fit them.
namespace millrace {
namespace {

template <class T>
const T& argument(void** arguments, int index) {
  return *static_cast<const T*>(arguments[index]);
}

/// What a kernel needs of its grid along one axis.
struct Axis {
  enum class Kind {
    threads,  ///< at least this number of threads: the kernel checks its index
    blocks,   ///< exactly this number of blocks: the index of a block is that of a slot, a mask or a picture
  };
  Kind kind = Kind::blocks;
  std::int64_t size = 1;
  unsigned threads = 1;  ///< of each block, for Kind::blocks
};
Axis threads(std::int64_t size) { return {Axis::Kind::threads, size}; }
Axis blocks(std::int64_t size, unsigned threads = 1) { return {Axis::Kind::blocks, size, threads}; }

bool fits(const Axis& axis, unsigned blocks, unsigned threads) {
  if (axis.kind == Axis::Kind::threads) return std::int64_t{blocks} * threads >= axis.size;
  return blocks == axis.size && threads == axis.threads;
}

/// Ends the process unless the grid of a launch fits the work: too small leaves work out, too large writes elsewhere.
void check_grid(std::string_view kernel, const fake_cuda::Grid& grid, const Axis& x, const Axis& y = {},
                const Axis& z = {}) {
  if (fits(x, grid.blocks.x, grid.threads.x) && fits(y, grid.blocks.y, grid.threads.y) &&
      fits(z, grid.blocks.z, grid.threads.z))
    return;
  std::fprintf(stderr,
               "fake CUDA: work of %lld x %lld x %lld does not fit the grid of kernel '%.*s': %u x %u x %u blocks of "
               "%u x %u x %u threads\n",
               static_cast<long long>(x.size), static_cast<long long>(y.size), static_cast<long long>(z.size),
               static_cast<int>(kernel.size()), kernel.data(), grid.blocks.x, grid.blocks.y, grid.blocks.z,
               grid.threads.x, grid.threads.y, grid.threads.z);
  std::abort();
}

constexpr unsigned team = 512;  // threads of a block of keep_best

/// CUB's only kernel that matters here: sums of all values before each one.
void exclusive_sum(void** arguments) {
  const auto* in = argument<const std::uint32_t*>(arguments, 0);
  std::exclusive_scan(in, in + argument<std::uint32_t>(arguments, 6), argument<std::uint32_t*>(arguments, 1), 0U);
}

/// Returns false for a name that is not in this list.
bool run(std::string_view kernel, const fake_cuda::Grid& grid, void** arguments) {
  if (kernel == "store_parcel") {
    const int bytes = argument<int>(arguments, 2);
    check_grid(kernel, grid, threads(bytes));
    std::memcpy(argument<void*>(arguments, 1), arguments[0], static_cast<std::size_t>(bytes));
  } else if (kernel.starts_with("letterbox<")) {
    using letterbox_kernel::thread_rows, letterbox_kernel::tile;
    const auto& job = argument<LetterboxJob>(arguments, 0);
    const auto tiles = [](int side) { return (side + tile - 1) / tile; };
    check_grid(kernel, grid, blocks(tiles(job.width), tile), blocks(tiles(job.height), thread_rows), blocks(job.count));
    for (int i = 0; i < job.count; ++i) letterbox_kernel::fill_input(job.rows[i]);
  } else if (kernel == "find_candidates") {
    const auto& job = argument<HeadJob>(arguments, 0);
    check_grid(kernel, grid, threads(job.candidates), blocks(job.slots));
    for (int slot = 0; slot < job.slots; ++slot) find_boxes_kernel::find_candidates(job, slot);
  } else if (kernel == "keep_best") {
    const auto& job = argument<HeadJob>(arguments, 0);
    check_grid(kernel, grid, blocks(job.slots, team));  // a block for each slot
    for (int slot = 0; slot < job.slots; ++slot)
      find_boxes_kernel::keep_best(job, slot, find_boxes_kernel::OneThread{});
  } else if (kernel == "classify_logits") {
    const auto& job = argument<OutlineJob>(arguments, 0);
    check_grid(kernel, grid, blocks(job.words(), 256), blocks(job.masks + job.geometries));
    outline_kernel::classify_all(job);
  } else if (kernel == "count_changes" || kernel == "write_changes") {
    const auto& job = argument<OutlineJob>(arguments, 0);
    check_grid(kernel, grid, threads(job.widest), blocks(job.masks), blocks(OutlineJob::stretches));
    outline_kernel::for_each_stretch(job, kernel == "count_changes" ? outline_kernel::count : outline_kernel::write);
  } else if (kernel.starts_with("cut_windows<")) {
    const auto& job = argument<CutWindowsJob>(arguments, 0);
    check_grid(kernel, grid, threads(job.roi.values()), blocks(job.channels), blocks(job.count));
    cut_windows_kernel::cut_all(job);
  } else if (kernel == "blend_windows") {
    const auto& job = argument<BlendJob>(arguments, 0);
    check_grid(kernel, grid, threads(job.most_values), blocks(job.count));
    blend_kernel::blend_all(job);
  } else if (kernel == "finish_rows") {
    const auto& job = argument<FinishJob>(arguments, 0);
    check_grid(kernel, grid, threads(job.most_places), blocks(job.count));
    finish_kernel::finish_all(job);
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
