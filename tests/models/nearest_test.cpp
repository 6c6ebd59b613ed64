#include "models/nearest.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace millrace {
namespace {

TEST_CASE("the nearest name") {
  const std::vector<std::string> known{"detect", "segment", "licence", "max_batch", "max_boxes"};
  CHECK(nearest_name("detcet", known) == "detect");    // swapped letters count once
  CHECK(nearest_name("detec", known) == "detect");     // removed
  CHECK(nearest_name("license", known) == "licence");  // replaced
  CHECK(nearest_name("max_batchs", known) == "max_batch");
  CHECK(nearest_name("segment", known) == "segment");
  CHECK(nearest_name("colour", known).empty());
  CHECK(nearest_name("", known).empty());
  CHECK(nearest_name("x", {}).empty());
}

}  // namespace
}  // namespace millrace
