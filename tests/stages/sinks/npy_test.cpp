#include <doctest/doctest.h>

#include <cstring>

#include "stages/class_map.hpp"
#include "stages/sinks/sink.hpp"
#include "tests/stages/sinks/sink_world.hpp"

namespace millrace {
namespace {

TEST_CASE("npy: the values of each pixel after a header of NumPy") {
  SinkWorld world;
  const auto frame = picture(1);
  const auto values =
      std::make_shared<const std::vector<float>>(std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  frame->columns.set(class_values, {{2, 1, 3}, false, 2, {values, values->data()}});
  const auto file = find_sink("npy").make(world.context())->encode(*frame, {});
  REQUIRE(file.size() == 128 + 12 * sizeof(float));
  CHECK(std::memcmp(file.data(), "\x93NUMPY\x01\x00\x76\x00", 10) == 0);
  const std::string header(file.begin() + 10, file.begin() + 128);
  CHECK(header.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 2), }"));
  CHECK(header.back() == '\n');
  std::vector<float> written(12);
  std::memcpy(written.data(), file.data() + 128, 12 * sizeof(float));
  CHECK(written == *values);
}

TEST_CASE("npy: a volume has one dimension more") {
  SinkWorld world;
  const auto frame = picture(1);
  const auto values = std::make_shared<const std::vector<float>>(24);
  frame->columns.set(class_values, {{2, 3, 4}, true, 1, {values, values->data()}});
  const auto file = find_sink("npy").make(world.context())->encode(*frame, {});
  CHECK(std::string(file.begin() + 10, file.begin() + 128).find("'shape': (2, 3, 4, 1), }") != std::string::npos);
}

}  // namespace
}  // namespace millrace
