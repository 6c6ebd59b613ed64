#include "io/results/object_order.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace millrace {

std::vector<std::size_t> best_first(std::span<const Object> objects) {
  // A sort needs an order, which NaN does not have. It counts as the lowest score.
  const auto key = [&](std::size_t i) {
    return std::isnan(objects[i].score) ? -std::numeric_limits<float>::infinity() : objects[i].score;
  };
  std::vector<std::size_t> order(objects.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return key(a) > key(b); });
  return order;
}

}  // namespace millrace
