#include <doctest/doctest.h>

#include "tests/io/reducers/reduced_lines.hpp"

namespace millrace {
namespace {

TEST_CASE("failures: failed pictures by view and reason") {
  const auto failed = [](const char* view, const char* reason) {
    return nlohmann::json{{"view", view}, {"state", "failed"}, {"reason", reason}};
  };
  const Reduced reduced = reduce_lines(
      "failures", {failed("b", "empty"), failed("a", "truncated"), nlohmann::json{{"view", "a"}, {"state", "ok"}},
                   failed("a", "truncated"), failed("a", "empty")});
  CHECK(reduced.content == "view,reason,pictures\n\"a\",empty,1\n\"a\",truncated,2\n\"b\",empty,1\n");
  CHECK(reduced.summary == std::vector<std::string>{"3 pictures of view a failed: 1 empty, 2 truncated",
                                                    "1 picture of view b failed: 1 empty"});
}

}  // namespace
}  // namespace millrace
