#include "pipeline/graph_result.hpp"

#include <algorithm>

namespace millrace {
namespace {

std::string describe(const std::vector<Held>& held) {
  constexpr std::size_t max_named = 8;
  std::string text;
  for (const auto& at : held) {
    text += (text.empty() ? "" : "; ") + std::to_string(at.frames) + " at " + at.stage + " (batches ";
    const auto named = std::min(at.batches.size(), max_named);
    for (std::size_t i = 0; i < named; ++i) text += (i > 0 ? ", " : "") + std::to_string(at.batches[i]);
    text += at.batches.size() > named ? ", ...)" : ")";
  }
  return text;
}

}  // namespace

FramesLost::FramesLost(std::int64_t planned, std::int64_t committed, const std::vector<Held>& held)
    : RunError("gate", std::to_string(planned - committed) + " of " + std::to_string(planned) +
                           " admitted frames were never committed, because credits were lost: " + describe(held) +
                           ". This is a defect of Millrace: please report this line, then run " +
                           "the same command again to finish the rest") {}

}  // namespace millrace
