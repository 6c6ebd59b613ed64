#pragma once

#include <cstdint>

#include "pipeline/simulation.hpp"

namespace millrace {

/// Draws a pipeline as users have them: all models on the cores, or on GPUs that lanes share.
[[nodiscard]] PipelineModel drawn(std::uint64_t seed);

}  // namespace millrace
