#pragma once

#include <cstdint>

namespace millrace {

/// Times of a lane's warm-up, by part.
struct WarmUpTimes {
  std::int64_t load_ns = 0;         ///< loading packages that no memory plan has loaded, or waiting for another lane
  std::int64_t first_calls_ns = 0;  ///< calls in the shapes of the run: libraries make plans and take memory
  std::int64_t timing_ns = 0;       ///< calls that measure the time of the GPU
  std::int64_t total_ns() const { return load_ns + first_calls_ns + timing_ns; }
};

/// Times of a run's start, by part.
struct StartTimes {
  std::int64_t streams_ns = 0;   ///< making stages and streams, and with the first stream the context of a GPU
  std::int64_t planning_ns = 0;  ///< planning of memory on GPUs, with its loads and calls of models
  WarmUpTimes slowest{};         ///< of the lane whose warm-up took longest
};

}  // namespace millrace
