#pragma once

#include <cstdint>

#include "gpu/detect_kernel.hpp"
#include "gpu/letterbox_kernel.hpp"
#include "gpu/outline_kernel.hpp"
#include "gpu/tensor.hpp"

struct CUstream_st;

namespace millrace {

using CudaStream = CUstream_st*;

/// Slots of a batch that kernels take; their geometry is a kernel argument, which holds 4 kB.
constexpr int most_slots = 32;

// Each function puts kernels on a stream and returns at once. None waits, allocates or copies. They throw CudaError when a launch is
// refused; what fails while it runs shows at the next wait.

/// Fills one row [3, input_height, input_width] of a model's input; `type` is f32, f16 or bf16.
void launch_letterbox(const LetterboxJob& job, DType type, void* out, CudaStream stream);

/// From the detector's output to kept boxes. `geometry` has job.slots entries, at most most_slots, and is copied; job.geometry is
/// ignored.
void launch_detect(const HeadJob& job, const SlotGeometry* geometry, CudaStream stream);

/// Prompts of a batch: kept boxes of all slots, one after the other, in pixels of the segmenter's input.
struct PromptJob {
  const KeptBox* kept = nullptr;             ///< [S, most_kept]
  const std::int32_t* kept_count = nullptr;  ///< [S]
  int slots = 0, most_kept = 0;
  int shown = 0;                     ///< most boxes of a slot
  int capacity = 0;                  ///< of the arrays below; what is behind the last prompt is zero
  float* boxes = nullptr;            ///< [capacity, 4]
  std::int64_t* image_index = nullptr;  ///< [capacity], slots
  std::int32_t* slot = nullptr;         ///< [capacity], the same for launch_outline
};
void launch_prompts(const PromptJob& job, const SlotGeometry* geometry, CudaStream stream);

/// Masks to the places where they change; see OutlineJob. counts [N * widest + 1]: how many places lie before those of (mask n, column
/// x), at n * widest + x; the last is their number. What does not fit into `capacity` places is not written.
struct OutlineBuffers {
  float* largest = nullptr;            ///< [N]
  std::uint32_t* counts = nullptr;     ///< [N * widest + 1]
  std::uint32_t* places = nullptr;     ///< [capacity]
  std::uint32_t capacity = 0;
  void* scratch = nullptr;             ///< outline_scratch_bytes(N * widest + 1)
  std::size_t scratch_bytes = 0;
};
std::size_t outline_scratch_bytes(int counts);
void launch_outline(const OutlineJob& job, int masks, const MaskGeometry* geometry, int slots, int widest, const OutlineBuffers& buffers,
                    CudaStream stream);

}  // namespace millrace
