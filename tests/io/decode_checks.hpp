#pragma once

#include <doctest/doctest.h>

#include <string>

#include "tests/io/decode_inputs.hpp"

namespace millrace::test {

/// The file fails for this reason, with these words in its sentence.
inline void expect(const File& file, Reason reason, const char* words, const DecodeLimits& limits = {}) {
  const Outcome outcome = outcome_of(file, limits);
  REQUIRE_MESSAGE(outcome.reason.has_value(), "decoded, but should be ", std::string(to_string(reason)));
  CHECK_MESSAGE(*outcome.reason == reason, outcome.detail);
  CHECK_MESSAGE(outcome.detail.find(words) != std::string::npos, outcome.detail);
}

}  // namespace millrace::test
