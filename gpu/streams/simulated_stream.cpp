#include "gpu/streams/simulated_stream.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>

namespace millrace {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::align_val_t alignment{256};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count();
}

std::int64_t as_ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

}  // namespace

std::int64_t SimulatedGpu::work(std::int64_t ready_ns, std::int64_t ns) {
  const std::lock_guard lock(mutex_);
  free_ns_ = std::max(free_ns_, ready_ns) + ns;
  busy_ns_ += ns;
  return free_ns_;
}

std::int64_t SimulatedGpu::busy_ns() const {
  const std::lock_guard lock(mutex_);
  return busy_ns_;
}

SimulatedStream::SimulatedStream(std::shared_ptr<SimulatedGpu> gpu)
    : gpu_(std::move(gpu)),
      memory_(std::make_shared<BlockPool>([](std::size_t bytes) { return ::operator new(bytes, alignment); },
                                          [](void* block) { ::operator delete(block, alignment); })) {}

void SimulatedStream::compute(double seconds) {
  asked_ns_ += as_ns(seconds);
  done_ns_ = gpu_->work(std::max(done_ns_, now_ns()), as_ns(seconds));
}

// GPUs have separate engines for copies, so kernels of other streams continue.
void SimulatedStream::transfer(double seconds) {
  asked_ns_ += as_ns(seconds);
  done_ns_ = std::max(done_ns_, now_ns()) + as_ns(seconds);
}

// An upload only takes time. Nothing reads its result, because models and operations compute nothing.
void SimulatedStream::upload(const void* /*host*/, void* /*device*/, std::size_t bytes) {
  transfer(static_cast<double>(bytes) / gpu_->rates().upload_bytes_per_s);
}

void SimulatedStream::download(const void* device, void* host, std::size_t bytes) {
  transfer(static_cast<double>(bytes) / gpu_->rates().download_bytes_per_s);
  // Copied at the wait and not before, as on a GPU.
  downloads_.emplace_back([=] { std::memcpy(host, device, bytes); });
}

// The table has no cost for these two.
void SimulatedStream::copy(const void* /*from*/, void* /*to*/, std::size_t /*bytes*/) {}
void SimulatedStream::zero(void* /*device*/, std::size_t /*bytes*/) {}

// Operations read it in `simulate`.
void SimulatedStream::store(const void* host, void* device, std::size_t bytes) { std::memcpy(device, host, bytes); }

void SimulatedStream::take(std::shared_ptr<const OperationCall> call) {
  const auto& known = gpu_->rates().operations_s;
  const auto found = known.find(call->name());
  if (found == known.end())
    // Ends the run. Otherwise every picture would fail for the same reason.
    throw DeviceError("the table of the simulated device has no time for the operation '" + std::string(call->name()) +
                      "'; add the key '" + std::string(call->name()) + "_ms'");
  compute(found->second * call->units());
  call->simulate();
}

void SimulatedStream::wait() {
  std::this_thread::sleep_until(Clock::time_point(std::chrono::nanoseconds(done_ns_)));
  for (const auto& one : downloads_) one();
  downloads_.clear();
}

}  // namespace millrace
