#include "base/half.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace millrace {
namespace {

/// The value of a 16-bit float with so many bits of exponent and mantissa.
double value_of(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1, all_ones = (1 << exponent_bits) - 1;
  const int exponent = (bits >> mantissa_bits) & all_ones, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == all_ones) return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

struct Format {
  const char* name;
  std::uint16_t (*convert)(float);
  int exponent_bits, mantissa_bits;
};

const Format formats[] = {{"bf16", to_bf16, 8, 7}, {"f16", to_f16, 5, 10}};

TEST_CASE("every 16-bit value stays the same, and values between two are rounded to the nearer, ties to even") {
  for (const Format& format : formats) {
    CAPTURE(format.name);
    const int infinity = ((1 << format.exponent_bits) - 1) << format.mantissa_bits;
    for (int bits = 0; bits < infinity; ++bits) {
      const auto here = static_cast<std::uint16_t>(bits);
      const double low = value_of(here, format.exponent_bits, format.mantissa_bits);
      REQUIRE(format.convert(static_cast<float>(low)) == here);
      REQUIRE(format.convert(static_cast<float>(-low)) == (here | 0x8000));
      // After the largest value, the next step would be a power of two, but its bits mean infinity.
      const double high =
          bits + 1 == infinity
              ? 2 * low - value_of(static_cast<std::uint16_t>(bits - 1), format.exponent_bits, format.mantissa_bits)
              : value_of(static_cast<std::uint16_t>(bits + 1), format.exponent_bits, format.mantissa_bits);
      const double middle = (low + high) / 2;
      const auto tie = static_cast<float>(middle);
      if (static_cast<double>(tie) != middle) continue;  // a float cannot represent the middle
      REQUIRE(format.convert(tie) == bits + (bits & 1));
      REQUIRE(format.convert(std::nextafter(tie, 0.0F)) == bits);
      REQUIRE(format.convert(std::nextafter(tie, std::numeric_limits<float>::infinity())) == bits + 1);
    }
  }
}

TEST_CASE("infinity stays infinite and NaN stays NaN") {
  for (const Format& format : formats) {
    CAPTURE(format.name);
    const auto back = [&](float value) {
      return value_of(format.convert(value), format.exponent_bits, format.mantissa_bits);
    };
    CHECK(back(std::numeric_limits<float>::infinity()) == std::numeric_limits<double>::infinity());
    CHECK(back(-std::numeric_limits<float>::infinity()) == -std::numeric_limits<double>::infinity());
    CHECK(back(std::numeric_limits<float>::max()) == std::numeric_limits<double>::infinity());
    CHECK(std::isnan(back(std::numeric_limits<float>::quiet_NaN())));
    CHECK(std::isnan(back(std::bit_cast<float>(0x7f800001U))));
  }
}

}  // namespace
}  // namespace millrace
