#include "models/call_limits.hpp"

#include <algorithm>
#include <bit>
#include <new>

#include "gpu/stream.hpp"
#include "models/engines/wrapped_engine.hpp"

namespace millrace {
namespace {

int floor_power(int rows) { return static_cast<int>(std::bit_floor(static_cast<unsigned>(rows))); }

class LimitedEngine final : public WrappedEngine {
 public:
  LimitedEngine(std::shared_ptr<Engine> engine, Package package, std::shared_ptr<CallLimits> limits)
      : WrappedEngine(std::move(engine)), package_(std::move(package)), limits_(std::move(limits)) {}

  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override {
    try {
      return try_call(method, inputs, device);
    } catch (const OutOfMemoryError&) {
      if (Stream* const stream = device.stream()) {
        // LibTorch cannot take memory that our stream keeps, and the other way round. The wait is that of the stream,
        // not of the device: it delivers no results, and frees nothing that the lane still uses.
        stream->wait();
        engine_->trim();
        stream->trim();
      }
      // All programs share the memory of the host, and nothing was freed there.
      if (device.on_host() || !limits_->may_repeat(package_.id(), method, rows_of_call(package_, method, inputs))) {
        ran_out(method, inputs);
        throw;
      }
    }
    // Outside of the handler, so that the first error holds no memory.
    try {
      return try_call(method, inputs, device);
    } catch (const OutOfMemoryError&) {
      ran_out(method, inputs);
      throw;
    }
  }

 private:
  std::vector<Tensor> try_call(std::string_view method, std::span<const Tensor> inputs, Device& device) {
    try {
      return engine_->call(method, inputs, device);
    } catch (const std::bad_alloc&) {
      // From engines that allocate on the device themselves, such as DeferredEngine.
      throw OutOfMemoryError(package_.name + ": " + std::string(method) + ": out of memory");
    }
  }

  // The rows as the model saw them, with padding. With fewer rows, a variant can use the same library, and fail again:
  // the next limit is that of the next smaller library. But several calls of the largest one need more for their results
  // than a single call.
  void ran_out(std::string_view method, std::span<const Tensor> inputs) {
    int rows = rows_of_call(package_, method, inputs);
    if (const auto counts = row_counts(method); !counts.empty()) {
      const auto used = std::lower_bound(counts.begin(), counts.end(), rows);
      rows = used == counts.begin() ? 1 : *(used - 1) + 1;
    }
    limits_->ran_out(package_.id(), method, rows);
  }

  const Package package_;
  const std::shared_ptr<CallLimits> limits_;
};

}  // namespace

int CallLimits::max_rows(const std::string& package, std::string_view method) const {
  const std::lock_guard lock(mutex_);
  const auto found = limits_.find({package, std::string(method)});
  return found == limits_.end() ? none : std::min(found->second.given, found->second.learned);
}

bool CallLimits::may_repeat(const std::string& package, std::string_view method, int rows) {
  const std::lock_guard lock(mutex_);
  int& repeated = limits_[{package, std::string(method)}].repeated;
  if (rows >= repeated) return false;
  repeated = rows;
  return true;
}

void CallLimits::ran_out(const std::string& package, std::string_view method, int rows) {
  const std::lock_guard lock(mutex_);
  int& learned = limits_[{package, std::string(method)}].learned;
  // rows - 1, so that a power of two becomes the next smaller one.
  learned = rows > 1 ? std::min(learned, floor_power(rows - 1)) : none;
}

void CallLimits::limit_rows(const std::string& package, std::string_view method, int rows) {
  const std::lock_guard lock(mutex_);
  int& given = limits_[{package, std::string(method)}].given;
  given = std::min(given, floor_power(std::max(1, rows)));
}

std::map<CallLimits::Key, int> CallLimits::learned() const {
  const std::lock_guard lock(mutex_);
  std::map<Key, int> all;
  for (const auto& [key, limit] : limits_) {
    if (limit.learned != none) all[key] = limit.learned;
  }
  return all;
}

std::shared_ptr<Engine> limited(std::shared_ptr<Engine> engine, const Package& package,
                                std::shared_ptr<CallLimits> limits) {
  return std::make_shared<LimitedEngine>(std::move(engine), package, std::move(limits));
}

}  // namespace millrace
