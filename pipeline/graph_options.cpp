#include "pipeline/graph_options.hpp"

#include <limits>
#include <stdexcept>
#include <string>

namespace millrace {
namespace {

void at_least(const char* name, std::int64_t value, std::int64_t smallest, const std::string& why) {
  if (value >= smallest) return;
  throw std::invalid_argument(std::string(name) + " is " + std::to_string(value) + ", the smallest allowed value is " +
                              std::to_string(smallest) + why);
}

}  // namespace

void check(const GraphOptions& options) {
  at_least("max_batch", options.max_batch, 1, "");
  at_least("slab_bytes", options.slab_bytes, 1, "");
  at_least("read_threads", options.read_threads, 1, "");
  at_least("read_ahead", options.read_ahead, 1, "");
  at_least("lanes", options.lanes, 1, "");
  at_least("workers", options.workers, 1, "");
  at_least("worker_nice", options.worker_nice, 0, "");
  const auto two_batches = 2 * std::int64_t{options.max_batch};
  const auto batch = std::to_string(options.max_batch);
  at_least("admission_items", options.admission_items, two_batches, ": two batches of " + batch + " frames");
  if (options.slab_bytes > std::numeric_limits<std::int64_t>::max() / two_batches) {
    throw std::invalid_argument("slab_bytes is " + std::to_string(options.slab_bytes) + ", which is too large for " +
                                "batches of " + batch + " frames: make it smaller");
  }
  at_least("byte_budget", options.byte_budget, two_batches * options.slab_bytes,
           ": two batches of " + batch + " frames with a slab of " + std::to_string(options.slab_bytes) +
               " bytes each; lower max_batch or slab_bytes to do with less memory");
}

}  // namespace millrace
