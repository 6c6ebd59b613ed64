#include "gpu/device.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <string_view>
#include <utility>

#include "gpu/streams/host_stream.hpp"

namespace millrace {

Device::Device() : Device(std::make_unique<HostStream>()) {}

Tensor Device::empty(std::vector<std::int64_t> shape, DType dtype) {
  Tensor tensor;
  tensor.shape = std::move(shape);
  tensor.dtype = dtype;
  tensor.device = stream_->device();
  // Streams allocate at least 1 byte, but a tensor may have no elements.
  tensor.storage = stream_->allocate(std::max<std::size_t>(tensor.bytes(), 1));
  tensor.data = tensor.storage.get();
  return tensor;
}

void Device::count(const DeviceCounts& more, Caller caller) {
  counts_ = counts_ + more;
  if (stage_.empty()) return;  // the warm-up belongs to no stage
  const std::string_view file = caller.file_name();
  const auto name = file.substr(file.find_last_of('/') + 1);
  DeviceCounts& of_call = counts_by_stage_[stage_][std::string(name) + ":" + std::to_string(caller.line())];
  of_call = of_call + more;
}

DeviceImage Device::upload(const Image8& raster, std::shared_ptr<const void> keep_raster, Caller caller) {
  if (on_host()) return {{std::move(keep_raster), raster.data}, raster.width, raster.height};
  const auto bytes = std::size_t{3} * static_cast<std::size_t>(raster.width) * static_cast<std::size_t>(raster.height);
  const auto memory = allocate<std::uint8_t>(bytes);
  keep(std::move(keep_raster));  // before the copy starts, because push_back can throw
  upload_rows(raster.data, memory.get(), bytes, caller);
  return {{memory, memory.get()}, raster.width, raster.height};
}

void Device::download(const void* from, void* to, std::size_t bytes, Caller caller) {
  copy_bytes(DeviceWork::Engine::downloads, bytes, [&] { stream_->download(from, to, bytes); });
  count({.downloads = 1}, caller);
}

void Device::upload_rows(const void* from, void* to, std::size_t bytes, Caller caller) {
  copy_bytes(DeviceWork::Engine::uploads, bytes, [&] { stream_->upload(from, to, bytes); });
  count({.uploads = 1}, caller);
}

void Device::wait(Caller caller) {
  // Freed at the return and not after each round, because a second round still reads memory of the first.
  std::vector<std::shared_ptr<const void>> kept;
  // A second round follows if a result asked for more work, as masks do that did not fit.
  for (bool again = false; !again || !at_wait_.empty(); again = true) {
    // Removed first, so that a failure of the stream does not run them twice.
    const auto hooks = std::exchange(at_wait_, {});
    std::move(kept_.begin(), kept_.end(), std::back_inserter(kept));
    kept_.clear();
    try {
      for (const auto& [before, after] : hooks) {
        if (before) before();
      }
    } catch (const std::bad_alloc&) {
      stream_->wait();  // the device may still write to memory that the exception frees
      throw;
    }
    stream_->wait();
    if (!on_host()) count({.waits = 1, .overflows = again ? 1 : 0}, caller);
    read_times();
    for (const auto& [before, after] : hooks) after();
  }
}

void Device::read_times() {
  for (const Timed& one : timed_) work_->took(one.job, stream_->seconds(one.from.get(), one.to.get()));
  timed_.clear();
}

void Device::abandon(Caller caller) {
  timed_.clear();
  // Both live until the wait has ended, because the device still uses their memory. No hook runs.
  const auto hooks = std::exchange(at_wait_, {});
  const auto kept = std::exchange(kept_, {});
  try {
    stream_->wait();
    if (!on_host()) count({.waits = 1}, caller);
  } catch (const DeviceError&) {
    throw;
  } catch (const std::exception&) {  // a fake stream runs operations here, so their errors come late
  }
}

}  // namespace millrace
