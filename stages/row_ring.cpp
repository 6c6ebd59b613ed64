#include "stages/row_ring.hpp"

#include <algorithm>
#include <utility>

#include "gpu/device.hpp"

namespace millrace {

RowRing::RowRing(std::shared_ptr<RegionSource> source, int rows, int ahead, std::vector<Hole>* holes, Look look,
                 Device& device)
    : source_(std::move(source)),
      row_bytes_(static_cast<std::size_t>(source_->info().row_bytes())),
      ahead_(ahead),
      capacity_(std::min(rows + ahead, source_->info().size.rows)),
      holes_(holes),
      look_(std::move(look)),
      device_(device),
      memory_(device.allocate<std::byte>(static_cast<std::size_t>(capacity_) * row_bytes_)) {}

int RowRing::load(int begin, int end, int ahead_end) {
  if (loaded_ < 0 || begin > loaded_ + coming_) jump(begin);
  int slabs = 0;
  while (loaded_ < end) {
    if (coming_ == 0) start(end - loaded_, std::launch::deferred);
    slabs += take();
  }
  const int last = std::min({end + ahead_, ahead_end, info().size.rows});
  // Deferred if the system has no thread left.
  if (coming_ == 0 && last > loaded_) start(last - loaded_, std::launch::async | std::launch::deferred);
  return slabs;
}

// Without rows that are being read, and without their errors: nobody needs them.
void RowRing::jump(int row) {
  read_ = {};  // waits for its thread
  coming_ = 0;
  coming_holes_.clear();
  loaded_ = row;
}

// Rows behind the end of the ring continue at its begin.
int RowRing::rows_before_end() const { return std::min(coming_, capacity_ - loaded_ % capacity_); }

void RowRing::start(int count, std::launch how) {
  coming_ = count;
  const int head = rows_before_end(), rest = coming_ - head;
  std::byte *to = slot(loaded_), *to_rest = memory_.get();
  if (!device_.on_host()) {
    staged_ = device_.mapped<std::byte>(static_cast<std::size_t>(coming_) * row_bytes_);
    to = staged_.get();
    to_rest = to + static_cast<std::size_t>(head) * row_bytes_;
  }
  const auto read = [this](int first, int rows, std::byte* at) {
    holes_ == nullptr ? source_->read(first, rows, at) : source_->read_with_holes(first, rows, at, coming_holes_);
    if (look_) look_(first, rows, at);
  };
  read_ = std::async(how, [read, first = loaded_, head, rest, to, to_rest] {
    read(first, head, to);
    if (rest > 0) read(first + head, rest, to_rest);
  });
}

int RowRing::take() {
  const int head = rows_before_end(), rest = std::exchange(coming_, 0) - head;
  read_.get();
  if (holes_ != nullptr) holes_->insert(holes_->end(), coming_holes_.begin(), coming_holes_.end());
  coming_holes_.clear();
  if (!device_.on_host()) {
    device_.keep(staged_);
    device_.keep(memory_);
    const std::size_t bytes = static_cast<std::size_t>(head) * row_bytes_;
    device_.upload_rows(staged_.get(), slot(loaded_), bytes);
    if (rest > 0)
      device_.upload_rows(staged_.get() + bytes, memory_.get(), static_cast<std::size_t>(rest) * row_bytes_);
  }
  loaded_ += head + rest;
  return rest > 0 ? 2 : 1;
}

}  // namespace millrace
