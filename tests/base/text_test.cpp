#include "base/text.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace millrace {
namespace {

TEST_CASE("bytes for people: powers of 1000, one decimal above bytes") {
  CHECK(readable_bytes(0) == "0 B");
  CHECK(readable_bytes(999) == "999 B");
  CHECK(readable_bytes(1000) == "1.0 kB");
  CHECK(readable_bytes(2.46e6) == "2.5 MB");
  CHECK(readable_bytes(512 * 1024 * 1024) == "536.9 MB");
  CHECK(readable_bytes(80e9) == "80.0 GB");
  CHECK(readable_bytes(1.2e16) == "12000.0 TB");
  // A value that rounds to 1000 of a unit becomes 1 of the next unit.
  CHECK(readable_bytes(999.6) == "1.0 kB");
  CHECK(readable_bytes(999'940) == "999.9 kB");
  CHECK(readable_bytes(999'960) == "1.0 MB");
}

TEST_CASE("a list of words in a sentence") {
  CHECK(listed({}).empty());
  CHECK(listed({"a"}) == "a");
  CHECK(listed({"a", "b"}) == "a and b");
  CHECK(listed({"a", "b", "c"}) == "a, b and c");
}

TEST_CASE("bytes for options: powers of 1024, without loss of digits") {
  CHECK(option_bytes(0) == "0");
  CHECK(option_bytes(1000) == "1000");
  CHECK(option_bytes(1024) == "1k");
  CHECK(option_bytes(65'536) == "64k");
  CHECK(option_bytes(65'537) == "65537");
  CHECK(option_bytes(std::int64_t{3} << 30) == "3G");
  CHECK(option_bytes(std::int64_t{2048} << 40) == "2048T");
}

TEST_CASE("digits are in groups of three") {
  CHECK(grouped(0) == "0");
  CHECK(grouped(999) == "999");
  CHECK(grouped(1000) == "1,000");
  CHECK(grouped(1'234'567) == "1,234,567");
  CHECK(grouped(-999) == "-999");
  CHECK(grouped(-1000) == "-1,000");
  CHECK(grouped(std::numeric_limits<std::int64_t>::min()) == "-9,223,372,036,854,775,808");
}

TEST_CASE("a count and its noun agree") {
  CHECK(count_of(0, "picture") == "0 pictures");
  CHECK(count_of(1, "picture") == "1 picture");
  CHECK(count_of(1234, "picture") == "1,234 pictures");
  CHECK(count_of(1, "batch", "batches") == "1 batch");
  CHECK(count_of(2, "batch", "batches") == "2 batches");
}

}  // namespace
}  // namespace millrace
