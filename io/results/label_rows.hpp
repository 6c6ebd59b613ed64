#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

namespace millrace {

/// The labels of a picture or volume, row by row.
class LabelRows {
 public:
  /// Gets whole rows in order: the first of them, and their labels.
  using Take = std::function<void(int first, std::span<const std::uint8_t> labels)>;

  LabelRows() = default;
  LabelRows(const LabelRows&) = delete;
  LabelRows& operator=(const LabelRows&) = delete;
  virtual ~LabelRows() = default;
  /// Any thread may call it, also several at once.
  virtual void read(const Take& take) const = 0;
};

/// Labels in memory.
class LabelsInMemory final : public LabelRows {
 public:
  LabelsInMemory(std::shared_ptr<const std::uint8_t[]> labels, std::size_t count)
      : labels_(std::move(labels)), count_(count) {}
  void read(const Take& take) const override { take(0, {labels_.get(), count_}); }

 private:
  const std::shared_ptr<const std::uint8_t[]> labels_;
  const std::size_t count_;
};

}  // namespace millrace
