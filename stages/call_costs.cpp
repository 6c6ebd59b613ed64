#include "stages/call_costs.hpp"

#include <time.h>

#include <algorithm>
#include <cstddef>

namespace millrace {
namespace {

constexpr std::size_t most_kept = 32;     // times of calls with the same number of rows
constexpr std::size_t most_sizes = 1024;  // numbers of rows
constexpr double least_ratio = 1.5;       // of rows, below which the difference of two times is mostly noise

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void CallCosts::took(const std::string& stage, const std::string& method, int rows, double seconds) {
  const std::lock_guard lock(mutex_);
  ByRows& by_rows = all_[{stage, method}];
  if (by_rows.size() >= most_sizes && !by_rows.contains(rows)) return;
  Calls& known = by_rows[rows];
  // The newest ones.
  if (known.seconds.size() < most_kept) {
    known.seconds.push_back(seconds);
  } else {
    known.seconds[static_cast<std::size_t>(known.calls) % most_kept] = seconds;
  }
  ++known.calls;
}

CallCosts::ByRows CallCosts::of(const std::string& stage, const std::string& method) const {
  const std::lock_guard lock(mutex_);
  const auto known = all_.find({stage, method});
  return known == all_.end() ? ByRows() : known->second;
}

std::optional<double> fixed_seconds(const CallCosts::ByRows& calls) {
  if (calls.empty() || calls.rbegin()->first < least_ratio * calls.begin()->first) return std::nullopt;
  // The best line through the medians of all numbers of rows. Each counts as often as it has times.
  double weight = 0, rows = 0, seconds = 0, rows_rows = 0, rows_seconds = 0;
  for (const auto& [count, known] : calls) {
    const double w = static_cast<double>(known.seconds.size()), x = count, y = median(known.seconds);
    weight += w;
    rows += w * x;
    seconds += w * y;
    rows_rows += w * x * x;
    rows_seconds += w * x * y;
  }
  const double slope = (weight * rows_seconds - rows * seconds) / (weight * rows_rows - rows * rows);
  return std::max((seconds - slope * rows) / weight, 0.0);
}

double thread_seconds() noexcept {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

}  // namespace millrace
