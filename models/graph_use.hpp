#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

/// What becomes of model calls as CUDA graphs. Any thread may use it.
class GraphUse {
 public:
  /// Devices share `captures`; see there.
  explicit GraphUse(std::shared_ptr<std::mutex> captures = std::make_shared<std::mutex>())
      : captures(std::move(captures)) {}

  struct Refusal {
    std::string method;      ///< with the name of the model
    std::string shapes;      ///< of the inputs
    bool no_memory = false;  ///< the graph did not fit. Else the work of the call cannot be captured
  };

  /// Locked by whoever captures, for the whole capture, and by whoever does what is forbidden meanwhile on any thread:
  /// wait for a whole GPU, or free LibTorch's memory. Captures also change a random generator that all threads share.
  const std::shared_ptr<std::mutex> captures;
  std::atomic<bool> paused = false;        ///< all calls are plain
  std::atomic<std::int64_t> captured = 0;  ///< graphs
  std::atomic<std::int64_t> launched = 0;  ///< calls that were the launch of a graph

  /// The calls of this shape stay plain. Lanes that say the same count once.
  void refuse(Refusal refusal) {
    const std::lock_guard lock(mutex_);
    const bool known = std::ranges::any_of(refusals_, [&](const Refusal& one) {
      return one.method == refusal.method && one.shapes == refusal.shapes && one.no_memory == refusal.no_memory;
    });
    if (!known) refusals_.push_back(std::move(refusal));
  }
  std::vector<Refusal> refusals() const {
    const std::lock_guard lock(mutex_);
    return refusals_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Refusal> refusals_;
};

/// A sentence for users.
inline std::string text_of(const GraphUse::Refusal& refusal) {
  return refusal.method + refusal.shapes +
         (refusal.no_memory
              ? ": there is not enough memory for a CUDA graph of this call"
              : ": its work cannot be captured as a CUDA graph; a model that waits for its GPU is one reason");
}

}  // namespace millrace
