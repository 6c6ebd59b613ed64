#include "gpu/ops/mirror.hpp"

#include <doctest/doctest.h>

#include <stdexcept>
#include <vector>

#include "tests/gpu/on_device.hpp"

namespace millrace {
namespace {

TEST_CASE("mirrored pictures have left and right exchanged, on host and stream") {
  HostAndDevice both;
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{1, 3, 1, 1}, {2, 3, 4, 5}, {1, 3, 7, 64}, {0, 3, 4, 4}}) {
    std::vector<float> values(static_cast<std::size_t>(shape[0] * 3 * shape[2] * shape[3]));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i);
    for (Device* device : {&both.host, &both.device}) {
      const Tensor to = device->empty(shape);
      mirror(*device, on(*device, values, shape), to);
      const auto mirrored = values_of<float>(*device, to);
      const auto width = static_cast<std::size_t>(shape[3]);
      int wrong = 0;
      for (std::size_t i = 0; i < values.size(); ++i)
        wrong += static_cast<int>(mirrored[i] != values[i / width * width + width - 1 - i % width]);
      CHECK(wrong == 0);
    }
  }
  CHECK_THROWS_AS(mirror(both.host, both.host.empty({1, 3, 2, 2}), both.host.empty({1, 3, 2, 3})),
                  std::invalid_argument);
}

}  // namespace
}  // namespace millrace
