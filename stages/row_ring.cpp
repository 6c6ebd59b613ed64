#include "stages/row_ring.hpp"

#include <algorithm>
#include <utility>

#include "gpu/device.hpp"

namespace millrace {

RowRing::RowRing(std::shared_ptr<RegionSource> source, int capacity, Device& device)
    : source_(std::move(source)),
      capacity_(capacity),
      device_(device),
      memory_(device.allocate<std::byte>(static_cast<std::size_t>(capacity) *
                                         static_cast<std::size_t>(source_->info().row_bytes()))) {}

int RowRing::load(int begin, int end) {
  if (loaded_ < 0) loaded_ = begin;
  int slabs = 0;
  const auto row_bytes = static_cast<std::size_t>(info().row_bytes());
  while (loaded_ < end) {
    const int slot = loaded_ % capacity_;
    const int count = std::min(end - loaded_, capacity_ - slot);
    const std::size_t bytes = static_cast<std::size_t>(count) * row_bytes;
    std::byte* const to = memory_.get() + static_cast<std::size_t>(slot) * row_bytes;
    if (device_.on_host()) {
      source_->read(loaded_, count, to);
    } else {
      const auto staging = device_.mapped<std::byte>(bytes);
      source_->read(loaded_, count, staging.get());
      device_.keep(staging);
      device_.keep(memory_);
      device_.upload_rows(staging.get(), to, bytes);
    }
    loaded_ += count;
    ++slabs;
  }
  return slabs;
}

}  // namespace millrace
