#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/half.hpp"
#include "gpu/ops/find_boxes.hpp"
#include "gpu/ops/letterbox.hpp"
#include "gpu/ops/outline.hpp"
#include "tests/gpu/fake_cuda/runtime.hpp"

// The kernels of gpu/ops/*.cu and cuda_stream.cu. Most bodies are in headers, and this file calls them for all elements.
// It does not look at the grid of the launch. It has its own versions of the other bodies.
namespace millrace {
namespace {

template <class T>
const T& argument(void** arguments, int index) {
  return *static_cast<const T*>(arguments[index]);
}

void fill_taps(const LetterboxRow& picture) {
  for (int i = 0; i < picture.x.size; ++i) letterbox_kernel::fill_taps(picture, false, i);
  for (int i = 0; i < picture.y.size; ++i) letterbox_kernel::fill_taps(picture, true, i);
}

void write_input(const LetterboxRow& picture, DType type, int width, int height) {
  std::int64_t at = 0;
  for (int plane = 0; plane < 3; ++plane) {
    for (int y = 0; y < height; ++y) {
      for (int x = 0; x < width; ++x, ++at) {
        const float value = letterbox_value(picture, x, y, plane);
        if (type == DType::f32) {
          static_cast<float*>(picture.out)[at] = value;
        } else {
          static_cast<std::uint16_t*>(picture.out)[at] = type == DType::f16 ? to_f16(value) : to_bf16(value);
        }
      }
    }
  }
}

/// The only thread of a block, for keep_best.
struct OneThread {
  int rank = 0, size = 1;
  [[nodiscard]] std::uint64_t max(std::uint64_t value) const { return value; }
};

void largest_magnitude(const OutlineJob& job) {
  const std::int64_t size = static_cast<std::int64_t>(job.logits_width) * job.logits_height;
  for (int mask = 0; mask < job.masks; ++mask) {
    float largest = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      const float magnitude = std::fabs(job.logits[mask * size + i]);
      if (std::isnan(magnitude) || magnitude > largest) largest = magnitude;
      if (std::isnan(largest)) break;
    }
    job.largest[mask] = largest;
  }
}

template <class Column>
void each_column(const OutlineJob& job, const Column& column) {
  for (int mask = 0; mask < job.masks; ++mask) {
    for (int x = 0; x < job.widest; ++x) column(job, mask, x);
  }
}

/// CUB's only kernel that matters here: sums of all values before each one.
void exclusive_sum(void** arguments) {
  const auto* in = argument<const std::uint32_t*>(arguments, 0);
  auto* out = argument<std::uint32_t*>(arguments, 1);
  const auto count = argument<std::uint32_t>(arguments, 6);
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t value = in[i];  // `out` can be the same memory
    out[i] = sum;
    sum += value;
  }
}

/// Returns false for a name that is not in this list.
bool run(std::string_view kernel, void** arguments) {
  if (kernel == "store_parcel") {
    std::memcpy(argument<void*>(arguments, 1), arguments[0], static_cast<std::size_t>(argument<int>(arguments, 2)));
  } else if (kernel == "fill_taps") {
    const auto& job = argument<LetterboxJob>(arguments, 0);
    for (int i = 0; i < job.count; ++i) fill_taps(job.rows[i]);
  } else if (kernel.starts_with("letterbox<")) {
    const auto& job = argument<LetterboxJob>(arguments, 0);
    for (int i = 0; i < job.count; ++i) write_input(job.rows[i], job.type, job.width, job.height);
  } else if (kernel == "find_candidates") {
    const auto& job = argument<HeadJob>(arguments, 0);
    for (int slot = 0; slot < job.slots; ++slot) {
      for (int i = 0; i < job.candidates; ++i) job.faults[slot] |= find_boxes_kernel::find_candidate(job, slot, i);
    }
  } else if (kernel == "keep_best") {
    const auto& job = argument<HeadJob>(arguments, 0);
    for (int slot = 0; slot < job.slots; ++slot) find_boxes_kernel::keep_best(job, slot, OneThread{});
  } else if (kernel == "largest_magnitude") {
    largest_magnitude(argument<OutlineJob>(arguments, 0));
  } else if (kernel == "count_changes") {
    each_column(argument<OutlineJob>(arguments, 0), outline_kernel::count_column);
  } else if (kernel == "write_changes") {
    each_column(argument<OutlineJob>(arguments, 0), outline_kernel::write_column);
  } else {
    return false;
  }
  return true;
}

}  // namespace
}  // namespace millrace

std::uint64_t fake_cuda::run_kernel(std::string_view name, void** arguments) {
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
  if (!millrace::run(name, arguments)) {
    std::fprintf(stderr, "fake CUDA: kernel '%.*s' has no row in tests/gpu/fake_cuda/kernels.cpp\n",
                 static_cast<int>(name.size()), name.data());
    std::abort();
  }
  return 0;
}
