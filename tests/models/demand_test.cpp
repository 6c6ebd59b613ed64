#include "models/demand.hpp"

#include <doctest/doctest.h>

#include "models/engines/fake_engine.hpp"
#include "tests/models/engines/variant_like.hpp"
#include "tests/models/small_segmenter.hpp"

namespace millrace {
namespace {

constexpr double ms = 1e-3;

/// Milliseconds that a call of `rows` boxes counts for. Those of 16, 64 and 160 were measured.
double counted_ms(std::int64_t rows, bool padded) {
  const Package package = small_segmenter();
  const auto demand = std::make_shared<Demand>();
  demand->measured(package, "decode", 16, {4 * ms, 1 * ms});
  demand->measured(package, "decode", 64, {10 * ms, 1 * ms});
  demand->measured(package, "decode", 160, {20 * ms, 1 * ms});
  std::shared_ptr<Engine> engine =
      std::make_shared<FakeEngine>([](std::string_view, std::span<const Tensor>) { return std::vector<Tensor>{}; });
  if (padded) engine = std::make_shared<VariantLike>(std::move(engine), std::vector{16, 64, 160});
  const std::vector<Tensor> inputs{Tensor::empty({1, 1}), Tensor::empty({rows, 4}), Tensor::empty({rows}, DType::i64)};
  counted(engine, package, demand, nullptr)->call("decode", inputs);
  return static_cast<double>(demand->parts().at(0).busy_ns) * 1e-6;
}

TEST_CASE("a call that was not measured takes the time of the nearest measured rows, in proportion") {
  CHECK(counted_ms(64, false) == doctest::Approx(10));
  CHECK(counted_ms(20, false) == doctest::Approx(4 * 20 / 16.0));
  CHECK(counted_ms(128, false) == doctest::Approx(20 * 128 / 160.0));
  CHECK(counted_ms(320, false) == doctest::Approx(40));
}

TEST_CASE("a call of a variant takes the time of the rows that its libraries compute") {
  CHECK(counted_ms(64, true) == doctest::Approx(10));
  CHECK(counted_ms(1, true) == doctest::Approx(4));
  CHECK(counted_ms(17, true) == doctest::Approx(10));
  CHECK(counted_ms(70, true) == doctest::Approx(20));
  CHECK(counted_ms(161, true) == doctest::Approx(20 * 176 / 160.0));  // a call for 160, and one for 16
  CHECK(counted_ms(320, true) == doctest::Approx(40));
}

TEST_CASE("calls of a method that was never measured do not count") {
  const Package package = small_segmenter();
  Demand demand;
  CHECK_FALSE(demand.count(package, package.method("encode"), 4));
  CHECK(demand.parts().empty());
}

}  // namespace
}  // namespace millrace
