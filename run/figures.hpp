#pragma once

#include <cstdint>
#include <optional>

namespace millrace {

/// A predicted figure. Nine of ten real values should lie between `low` and `high`; both are empty if unknown.
struct Figure {
  double value = 0;
  std::optional<double> low{}, high{};

  /// A figure that is known.
  static Figure exactly(double value) { return {value, value, value}; }
  /// Adds figures bound by bound, as if they rose together. For others the interval is wider than necessary.
  Figure& operator+=(const Figure& other);
};
[[nodiscard]] Figure operator*(Figure figure, double factor);

/// The 0.95 quantile of Student's t distribution. `degrees` of freedom are at least 1.
[[nodiscard]] double t_quantile(std::int64_t degrees);

/// The number of decimal digits of the numbers from `first` to `end` - 1 together.
[[nodiscard]] double digits_between(std::int64_t first, std::int64_t end);

/// A value of each picture of a sample. It keeps sums only.
class Spread {
 public:
  void add(double value);
  std::int64_t count() const { return count_; }
  double sum() const { return sum_; }
  double mean() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : 0; }
  /// Standard deviation of the pictures from which the sample was drawn; empty for fewer than two values.
  std::optional<double> deviation() const;

  /// The sum over `total` pictures. The sample is part of them, so the sum over as many pictures is exact.
  /// If `total` is smaller, the pictures are others.
  Figure sum_over(std::int64_t total) const;
  /// The sum of `total` new values, for values that differ each time, such as times.
  Figure sum_of_new(double total) const;

 private:
  Figure predicted(double total, double variance) const;

  std::int64_t count_ = 0;
  double sum_ = 0, squares_ = 0;
};

}  // namespace millrace
