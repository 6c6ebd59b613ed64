#include "base/nearest.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace millrace {
namespace {

// Returns the optimal string alignment distance. Only the last three rows of its table are kept.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      // Two swapped neighbours are one edit.
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

}  // namespace

std::string nearest_name(std::string_view given, std::span<const std::string> known) {
  std::string nearest;
  std::size_t fewest = std::max<std::size_t>(1, given.size() / 3) + 1;
  for (const std::string& name : known) {
    const std::size_t distance = edits(given, name);
    if (distance < fewest) {
      fewest = distance;
      nearest = name;
    }
  }
  return nearest;
}

std::string did_you_mean(std::string_view given, std::span<const std::string> known, std::string_view rest,
                         std::string_view prefix) {
  const std::string near = nearest_name(given, known);
  std::string text;
  if (!near.empty()) text = "; did you mean '" + std::string(prefix) + near + "'?";
  if (!rest.empty()) text += (near.empty() ? "; " : " ") + std::string(rest);
  return text;
}

}  // namespace millrace
