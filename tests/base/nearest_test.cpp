#include "base/nearest.hpp"

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

TEST_CASE("the end of a message about an unknown name") {
  const std::vector<std::string> known{"left", "right"};
  CHECK(did_you_mean("lefft", known) == "; did you mean 'left'?");
  CHECK(did_you_mean("lefft", known, "known: all") == "; did you mean 'left'? known: all");
  CHECK(did_you_mean("lefft", known, "see --help", "--") == "; did you mean '--left'? see --help");
  CHECK(did_you_mean("top", known).empty());
  CHECK(did_you_mean("top", known, "see --help") == "; see --help");
}

}  // namespace
}  // namespace millrace
