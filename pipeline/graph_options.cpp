#include "pipeline/graph_options.hpp"

#include <limits>
#include <stdexcept>
#include <string>

#include "base/text.hpp"

namespace millrace {
namespace {

// `why` follows the number at the end of the message. `text` writes the numbers.
void at_least(const char* name, std::int64_t value, std::int64_t smallest, const std::string& why,
              std::string (*text)(std::int64_t) = std::to_string) {
  if (value >= smallest) return;
  throw std::invalid_argument(std::string(name) + " is " + text(value) + ", the smallest allowed value is " +
                              text(smallest) + why);
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
  at_least("groups", options.groups, 1, "");
  const auto two_batches = 2 * std::int64_t{options.max_batch};
  const auto batch = count_of(options.max_batch, "picture");
  at_least("admission_items", options.admission_items, two_batches, ": two batches of " + batch);
  // Otherwise the product in the last check would overflow.
  if (options.slab_bytes > std::numeric_limits<std::int64_t>::max() / two_batches) {
    throw std::invalid_argument("slab_bytes is " + option_bytes(options.slab_bytes) + ", which is too large for " +
                                "batches of " + batch + ": make it smaller");
  }
  at_least("byte_budget", options.byte_budget, two_batches * options.slab_bytes,
           ": two batches of " + batch + " with a slab of " + option_bytes(options.slab_bytes) +
               " each; lower max_batch or slab_bytes to use less memory",
           option_bytes);
}

}  // namespace millrace
