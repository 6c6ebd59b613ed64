#include "gpu/finite.hpp"

#include <bit>
#include <cstdint>

#include "gpu/clones.hpp"

namespace millrace {

namespace {

MILLRACE_CLONES std::uint32_t non_finite_bits(const float* values, std::size_t count) {
  // NaN and infinity have all bits of the exponent set. No early exit, so the compiler can vectorise the loop.
  constexpr std::uint32_t exponent = 0x7f800000;
  std::uint32_t found = 0;
  for (std::size_t i = 0; i < count; ++i) {
    found |= (std::bit_cast<std::uint32_t>(values[i]) & exponent) == exponent ? 1U : 0U;
  }
  return found;
}

}  // namespace

bool all_finite(std::span<const float> values) { return non_finite_bits(values.data(), values.size()) == 0; }

}  // namespace millrace
