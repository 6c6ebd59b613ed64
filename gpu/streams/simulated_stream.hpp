#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/stream.hpp"
#include "gpu/streams/block_pool.hpp"

namespace millrace {

/// Times and rates of a simulated GPU.
struct SimulatedRates {
  double upload_bytes_per_s = 25e9, download_bytes_per_s = 25e9;
  std::map<std::string, double, std::less<>> operations_s{};  ///< seconds per unit, by name (Operation::units)
};

/// One GPU that several streams share. It runs one call at a time, in the order of the calls. Thread-safe.
class SimulatedGpu {
 public:
  explicit SimulatedGpu(SimulatedRates rates = {}) : rates_(rates) {}

  [[nodiscard]] const SimulatedRates& rates() const { return rates_; }
  /// Adds work of `ns` that can start at `ready_ns` of the steady clock. Returns its end.
  std::int64_t work(std::int64_t ready_ns, std::int64_t ns);
  /// Returns the time of all work so far.
  [[nodiscard]] std::int64_t busy_ns() const;

 private:
  const SimulatedRates rates_;
  mutable std::mutex mutex_;
  std::int64_t free_ns_ = 0, busy_ns_ = 0;
};

/// A stream that computes nothing and takes as long as a GPU would. wait() sleeps until the GPU would be done.
/// So it measures the host's side at the speed of any GPU. Outputs come from Operation::simulate: a detector finds
/// nothing, and every mask is the same ellipse.
class SimulatedStream final : public Stream {
 public:
  explicit SimulatedStream(std::shared_ptr<SimulatedGpu> gpu);

  [[nodiscard]] int device() const override { return 0; }
  std::shared_ptr<void> allocate(std::size_t bytes) override { return memory_->take(bytes); }
  std::shared_ptr<void> allocate_mapped(std::size_t bytes) override { return memory_->take(bytes); }
  void upload(const void* host, void* device, std::size_t bytes) override;
  void download(const void* device, void* host, std::size_t bytes) override;
  void copy(const void* from, void* to, std::size_t bytes) override;
  void zero(void* device, std::size_t bytes) override;
  void store(const void* host, void* device, std::size_t bytes) override;
  void wait() override;
  // The time of this stream's calls. The clock would add the time of other streams.
  std::shared_ptr<const void> mark() override { return std::make_shared<const std::int64_t>(asked_ns_); }
  [[nodiscard]] double seconds(const void* from, const void* to) const override {
    const auto asked_ns = [](const void* mark) { return *static_cast<const std::int64_t*>(mark); };
    return static_cast<double>(asked_ns(to) - asked_ns(from)) / 1e9;
  }

  /// Adds a model call of this duration.
  void compute(double seconds);

 protected:
  /// Throws DeviceError if the rates have no time for the operation.
  void take(std::shared_ptr<const OperationCall> call) override;

 private:
  void transfer(double seconds);

  const std::shared_ptr<SimulatedGpu> gpu_;
  const std::shared_ptr<BlockPool> memory_;
  std::int64_t done_ns_ = 0;   // end of all calls so far
  std::int64_t asked_ns_ = 0;  // GPU time of this stream's calls
  std::vector<std::function<void()>> downloads_;
};

}  // namespace millrace
