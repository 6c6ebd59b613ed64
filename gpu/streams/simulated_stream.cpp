#include "gpu/streams/simulated_stream.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
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

// Copies have engines of their own: the kernels of other streams go on.
void SimulatedStream::transfer(double seconds) { done_ns_ = std::max(done_ns_, now_ns()) + as_ns(seconds); }

void SimulatedStream::upload(const void* /*host*/, void* /*device*/, std::size_t bytes) {
  transfer(static_cast<double>(bytes) / gpu_->rates().upload_bytes_per_s);
}

void SimulatedStream::download(const void* device, void* host, std::size_t bytes) {
  transfer(static_cast<double>(bytes) / gpu_->rates().download_bytes_per_s);
  downloads_.emplace_back([=] { std::memcpy(host, device, bytes); });
}

void SimulatedStream::copy(const void* /*from*/, void* /*to*/, std::size_t /*bytes*/) {}
void SimulatedStream::zero(void* /*device*/, std::size_t /*bytes*/) {}

// Kernels read it, and here those of outlines do.
void SimulatedStream::store(const void* host, void* device, std::size_t bytes) { std::memcpy(device, host, bytes); }

void SimulatedStream::letterbox(const LetterboxJob& /*job*/, DType /*type*/, void* /*out*/) {
  compute(gpu_->rates().letterbox_s);
}

void SimulatedStream::find_boxes(const HeadJob& job) {
  compute(gpu_->rates().find_boxes_s);
  std::fill_n(job.summaries, 2 * job.slots, 0);
}

/// Places of an ellipse in the middle, a quarter of the picture long and high: twice as many as it has columns, 960 in
/// a picture of 1920 x 1080, where masks of real objects have 300 to 5,000.
const std::vector<std::uint32_t>& SimulatedStream::ellipse(int width, int height) {
  auto& places = ellipses_[{width, height}];
  if (!places.empty()) return places;
  const int columns = std::max(1, width / 4);
  for (int i = 0; i < columns; ++i) {
    const double across = 2.0 * (i + 0.5) / columns - 1;
    const int half = std::max(1, static_cast<int>(height / 8.0 * std::sqrt(1 - across * across)));
    const int x = (width - columns) / 2 + i, middle = height / 2;
    const int top = std::max(0, middle - half), bottom = std::min(height, middle + half);
    places.push_back(static_cast<std::uint32_t>(x * height + top));
    places.push_back(static_cast<std::uint32_t>(x * height + bottom));
  }
  return places;
}

void SimulatedStream::outline(const OutlineJob& job) {
  compute(gpu_->rates().outline_s * job.masks);
  write_places(job);
}

void SimulatedStream::write_places(const OutlineJob& job) {
  std::uint32_t at = 0;
  for (int n = 0; n < job.masks; ++n) {
    job.starts[n] = at;
    job.iou[n] = 0.9F;
    job.largest[n] = 1;
    if (job.slots[n] < 0) continue;
    const MaskGeometry& geometry = job.geometry[job.slots[n]];
    const auto& places = ellipse(geometry.picture_width, geometry.picture_height);
    if (at + places.size() <= job.capacity) std::copy(places.begin(), places.end(), job.places + at);
    at += static_cast<std::uint32_t>(places.size());
  }
  job.starts[job.masks] = at;
}

void SimulatedStream::wait() {
  std::this_thread::sleep_until(Clock::time_point(std::chrono::nanoseconds(done_ns_)));
  for (const auto& one : downloads_) one();
  downloads_.clear();
}

double SimulatedStream::time(const std::function<void()>& work) {
  asked_ns_ = 0;
  work();
  const auto seconds = static_cast<double>(asked_ns_) / 1e9;
  wait();
  return seconds;
}

}  // namespace millrace
