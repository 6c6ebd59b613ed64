#include "run/figures.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace millrace {

Figure& Figure::operator+=(const Figure& other) {
  value += other.value;
  low = low && other.low ? std::optional(*low + *other.low) : std::nullopt;
  high = high && other.high ? std::optional(*high + *other.high) : std::nullopt;
  return *this;
}

Figure operator*(Figure figure, double factor) {
  figure.value *= factor;
  if (figure.low) *figure.low *= factor;
  if (figure.high) *figure.high *= factor;
  return figure;
}

double t_quantile(std::int64_t degrees) {
  constexpr double p = 0.95;
  if (degrees <= 1) return std::tan(std::numbers::pi * (p - 0.5));
  constexpr double a = 2 * p - 1;
  if (degrees == 2) return a * std::sqrt(2 / (1 - a * a));
  // The expansion of Cornish and Fisher around the normal quantile; from 3 degrees on, its error is below 1 %.
  constexpr double z = 1.6448536269514722;
  constexpr double z2 = z * z;
  const auto n = static_cast<double>(degrees);
  return z * (1 + (z2 + 1) / (4 * n) + (5 * z2 * z2 + 16 * z2 + 3) / (96 * n * n) +
              (3 * z2 * z2 * z2 + 19 * z2 * z2 + 17 * z2 - 15) / (384 * n * n * n));
}

double digits_between(std::int64_t first, std::int64_t end) {
  double sum = 0;
  std::int64_t from = 0, to = 10;  // the numbers with `digits` digits
  for (int digits = 1; from < end; ++digits) {
    sum += digits * static_cast<double>(std::max<std::int64_t>(std::min(to, end) - std::max(from, first), 0));
    from = to;
    to *= 10;
  }
  return sum;
}

void Spread::add(double value) {
  ++count_;
  sum_ += value;
  squares_ += value * value;
}

std::optional<double> Spread::deviation() const {
  if (count_ < 2) return std::nullopt;
  const auto n = static_cast<double>(count_);
  // Rounding can make the difference negative.
  return std::sqrt(std::max((squares_ - sum_ * sum_ / n) / (n - 1), 0.0));
}

Figure Spread::predicted(double total, double variance) const {
  const double value = mean() * total;
  const double half = t_quantile(count_ - 1) * std::sqrt(variance);
  return {value, std::max(value - half, 0.0), value + half};
}

Figure Spread::sum_over(std::int64_t total) const {
  if (total == count_) return Figure::exactly(sum_);
  const auto all = static_cast<double>(total), n = static_cast<double>(count_);
  const auto s = deviation();
  if (!s) return {mean() * all};
  if (total < count_) return sum_of_new(all);
  // Only the other (all - n) pictures are uncertain: each varies itself, and all share the error of the mean.
  Figure figure = predicted(all, *s * *s * (all - n) * all / n);
  figure.low = std::max(*figure.low, sum_);
  return figure;
}

Figure Spread::sum_of_new(double total) const {
  const auto s = deviation();
  if (!s) return {mean() * total};
  return predicted(total, *s * *s * total * (1 + total / static_cast<double>(count_)));
}

}  // namespace millrace
