#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <vector>

#include "io/regions/region_source.hpp"

namespace millrace {

class Device;

/// The last rows of a file that is read in parts, in a device's memory. Row r is at r % capacity.
/// While the caller uses rows, another thread reads the next ones.
class RowRing {
 public:
  using Look = std::function<void(int first, int count, const void* rows)>;
  /// Keeps at least `rows` rows, and reads up to `ahead` further ones.
  /// `look`, if not empty, gets the rows in order, and must not throw. Another thread may call it, before load() returns
  /// for these rows.
  /// `holes` gets the parts of loaded rows that cannot be read, and must outlive this; null: such a part throws.
  RowRing(std::shared_ptr<RegionSource> source, int rows, int ahead, std::vector<Hole>* holes, Look look,
          Device& device);

  /// Makes rows [begin, end) available, and reads up to row `ahead_end`, as far as there is room. Rows before end - rows
  /// are lost. Rows between those that were read and `begin` are left out.
  /// Returns how many slabs went to the device. Throws PictureError.
  int load(int begin, int end, int ahead_end);
  /// The same, with all rows ahead for which there is room.
  int load(int begin, int end) { return load(begin, end, end + ahead_); }

  const std::byte* data() const { return memory_.get(); }
  int capacity() const { return capacity_; }
  const RegionInfo& info() const { return source_->info(); }

 private:
  std::byte* slot(int row) const { return memory_.get() + static_cast<std::size_t>(row % capacity_) * row_bytes_; }
  void jump(int row);
  int rows_before_end() const;
  void start(int count, std::launch how);
  int take();

  const std::shared_ptr<RegionSource> source_;
  const std::size_t row_bytes_;
  const int ahead_, capacity_;
  std::vector<Hole>* const holes_;
  const Look look_;
  Device& device_;
  const std::shared_ptr<std::byte[]> memory_;
  int loaded_ = -1;                      // rows before it are in memory; -1: none was
  int coming_ = 0;                       // rows behind them that are being read
  std::shared_ptr<std::byte[]> staged_;  // gets these rows, if the device is not the host
  std::vector<Hole> coming_holes_;
  std::future<void> read_;  // last, because its destructor waits for the thread that uses the others
};

}  // namespace millrace
