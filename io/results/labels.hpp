#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/files/files.hpp"
#include "io/results/label_rows.hpp"

namespace millrace {

/// Labels in a file that grows slab by slab, so that a killed run continues inside a large item.
///
/// The file begins with a line that has `key`, and each slab has a check. Opening cuts off what is torn, or belongs to
/// another key. Every slab is compressed by zlib: labels need about a hundredth of their size.
class LabelFile final : public LabelRows {
 public:
  /// Opens or creates `folder`/`name`. The folder must exist. Throws StorageError.
  LabelFile(const std::string& folder, const std::string& name, const std::string& key, int rows,
            std::int64_t row_labels, const FileSystem& files = real_files);

  /// The rows that the file has, from the first one on.
  int finished_rows() const;
  /// Whether rows come from calls that did not have the planned shape (Frame::split).
  bool split() const { return split_; }
  /// Appends whole rows. Makes the file durable if the last time is five seconds ago. Throws StorageError.
  void append(std::span<const std::uint8_t> labels, bool split = false);
  void read(const Take& take) const override;
  /// Deletes the file, when the item's line is written.
  void remove();

 private:
  struct Slab {
    std::int64_t offset = 0;
    std::uint32_t bytes = 0;
    int first = 0, rows = 0;
  };
  void recover(const std::string& head);

  const FileSystem& files_;
  const int rows_;
  const std::int64_t row_labels_;
  File file_;
  std::int64_t end_ = 0;
  bool split_ = false;
  std::vector<Slab> slabs_;
  std::chrono::steady_clock::time_point synced_ = std::chrono::steady_clock::now();
};

}  // namespace millrace
