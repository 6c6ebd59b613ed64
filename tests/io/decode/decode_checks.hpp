#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/io/decode/decode_inputs.hpp"

namespace millrace::test {

/// Checks that the file fails for this reason, with these words in its message.
inline void expect(const File& file, Reason reason, const char* words, const DecodeLimits& limits = {}) {
  const Outcome outcome = outcome_of(file, limits);
  REQUIRE_MESSAGE(outcome.reason.has_value(), "decoded, but expected ", std::string(to_string(reason)));
  CHECK_MESSAGE(*outcome.reason == reason, outcome.detail);
  CHECK_MESSAGE(outcome.detail.find(words) != std::string::npos, outcome.detail);
}

/// Decodes many damaged copies of `seeds`. Each copy decodes or fails with PictureError.
/// Returns the number of copies that decoded.
inline int survive(const std::vector<File>& seeds, int copies, unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random()) % std::max<std::size_t>(1, n); };
  // Small limits, so that the sizes in damaged headers cost the test no time.
  const DecodeLimits limits{.max_pixels = 4'000'000, .max_scans = 50, .slab_bytes = 100'000, .working_bytes = 1 << 22};
  int decoded = 0;
  for (int i = 0; i < copies; ++i) {
    File file = seeds[below(seeds.size())];
    const std::size_t head = std::min<std::size_t>(file.size(), 200);
    switch (below(5)) {
      case 0:
        file.resize(below(file.size()));
        break;
      case 1:
        for (std::size_t k = 0; k < 1 + below(20); ++k)
          file[below(file.size())] ^= static_cast<std::uint8_t>(1U << below(8));
        break;
      case 2:
        for (std::size_t k = 0; k < 1 + below(4); ++k) file[below(head)] = static_cast<std::uint8_t>(below(256));
        break;
      case 3: {
        const std::size_t from = below(file.size()), to = below(file.size()), size = below(64);
        for (std::size_t k = 0; k < size && from + k < file.size() && to + k < file.size(); ++k)
          file[to + k] = file[from + k];
        break;
      }
      default:
        file.erase(file.begin() + static_cast<std::ptrdiff_t>(below(file.size())));
        break;
    }
    const DecodeLimits& chosen = limits;
    DecodeLimits lenient = limits;
    lenient.accept_truncated = 0.1;
    const Outcome outcome = outcome_of(file, i % 2 == 0 ? chosen : lenient);  // anything but PictureError ends the test
    decoded += outcome.decoded ? 1 : 0;
  }
  return decoded;
}

}  // namespace millrace::test
