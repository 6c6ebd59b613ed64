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

/// What a GPU that is not there takes.
struct SimulatedRates {
  double upload_bytes_per_s = 25e9, download_bytes_per_s = 25e9;
  std::map<std::string, double, std::less<>> operations_s{};  ///< by name, of one unit of cost (gpu/operation.hpp)
};

/// One GPU of several streams: it works on one thing at a time, in the order of asking.
class SimulatedGpu {
 public:
  explicit SimulatedGpu(SimulatedRates rates = {}) : rates_(rates) {}

  [[nodiscard]] const SimulatedRates& rates() const { return rates_; }
  /// Work of `ns` that may begin at `ready_ns` of the steady clock: when it ends.
  std::int64_t work(std::int64_t ready_ns, std::int64_t ns);
  /// Time of all work so far.
  [[nodiscard]] std::int64_t busy_ns() const;

 private:
  const SimulatedRates rates_;
  mutable std::mutex mutex_;
  std::int64_t free_ns_ = 0, busy_ns_ = 0;
};

/// A stream that computes nothing and takes the time of a GPU, so that the host's side can be driven at the speed of
/// any: the calling thread sleeps in wait() until the GPU would be done. What
/// operations write then stands in their rows: a detector finds nothing, and every mask is one ellipse.
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
  double time(const std::function<void()>& work) override;

  /// A model's call that takes this long.
  void compute(double seconds);

 protected:
  /// Throws DeviceError where the rates have no time for the operation.
  void take(std::shared_ptr<const OperationCall> call) override;

 private:
  void transfer(double seconds);

  const std::shared_ptr<SimulatedGpu> gpu_;
  const std::shared_ptr<BlockPool> memory_;
  std::int64_t done_ns_ = 0;   // when all that was asked for is done
  std::int64_t asked_ns_ = 0;  // of the GPU's time, by this stream
  std::vector<std::function<void()>> downloads_;
};

}  // namespace millrace
