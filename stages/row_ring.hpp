#pragma once

#include <cstddef>
#include <memory>

#include "io/regions/region_source.hpp"

namespace millrace {

class Device;

/// The last rows of a file that is read in parts, in a device's memory. Row r is at r % capacity.
class RowRing {
 public:
  RowRing(std::shared_ptr<RegionSource> source, int capacity, Device& device);

  /// Makes rows up to `end` available; the first call also sets the row at which reading begins.
  /// Rows before end - capacity are lost. Returns how many slabs went to the device. Throws PictureError.
  int load(int begin, int end);

  const std::byte* data() const { return memory_.get(); }
  int capacity() const { return capacity_; }
  const RegionInfo& info() const { return source_->info(); }

 private:
  const std::shared_ptr<RegionSource> source_;
  const int capacity_;
  Device& device_;
  const std::shared_ptr<std::byte[]> memory_;
  int loaded_ = -1;  // rows before it have been read; -1: none was
};

}  // namespace millrace
