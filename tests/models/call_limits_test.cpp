#include "models/call_limits.hpp"

#include <doctest/doctest.h>

#include <new>

#include "models/engines/fake_engine.hpp"
#include "tests/models/engines/variant_like.hpp"
#include "tests/models/small_segmenter.hpp"

namespace millrace {
namespace {

std::vector<Tensor> inputs_of(std::string_view method, std::int64_t pictures, std::int64_t boxes) {
  std::vector<Tensor> inputs{Tensor::empty({pictures, 1})};
  if (method == "decode") {
    inputs.push_back(Tensor::empty({boxes, 4}));
    inputs.push_back(Tensor::empty({boxes}, DType::i64));
  }
  return inputs;
}

TEST_CASE("a variant that ran out of memory gets calls for its next smaller library") {
  const auto limits = std::make_shared<CallLimits>();
  const auto fails = std::make_shared<FakeEngine>(
      [](std::string_view, std::span<const Tensor>) -> std::vector<Tensor> { throw OutOfMemoryError("planned"); });
  const auto engine =
      limited(std::make_shared<VariantLike>(fails, std::vector{16, 64, 160}), small_segmenter(), limits);
  const auto limit_after = [&](std::int64_t boxes) {
    CHECK_THROWS_AS(engine->call("decode", inputs_of("decode", 1, boxes)), OutOfMemoryError);
    return limits->max_rows(small_segmenter().id(), "decode");
  };
  CHECK(limit_after(300) == 64);  // calls for 160 failed
  CHECK(limit_after(70) == 64);
  CHECK(limit_after(40) == 16);
  CHECK(limit_after(16) == CallLimits::none);  // as when one row does not fit
  CHECK(limit_after(100) == 64);
}

TEST_CASE("a call that ran out of memory sets the limit to the next smaller power of two") {
  bool fail = true;
  const auto limits = std::make_shared<CallLimits>();
  const auto engine = limited(std::make_shared<FakeEngine>([&](std::string_view method, std::span<const Tensor>) {
                                if (fail && method == "encode") throw OutOfMemoryError("planned");
                                if (fail) throw std::bad_alloc();
                                return std::vector<Tensor>{};
                              }),
                              small_segmenter(), limits);
  CHECK(limits->max_rows(small_segmenter().id(), "encode") == CallLimits::none);
  CHECK_THROWS_AS(engine->call("encode", inputs_of("encode", 16, 0)), OutOfMemoryError);
  CHECK_THROWS_AS(engine->call("decode", inputs_of("decode", 16, 7)), OutOfMemoryError);
  CHECK(limits->learned() == std::map<CallLimits::Key, int>{{{small_segmenter().id(), "encode"}, 8},
                                                            {{small_segmenter().id(), "decode"}, 4}});
  CHECK(limits->max_rows("another", "encode") == CallLimits::none);
  fail = false;
  engine->call("encode", inputs_of("encode", 16, 0));
  CHECK(limits->max_rows(small_segmenter().id(), "encode") == 8);
}

TEST_CASE("given limits only lower the limit, and not below one row") {
  CallLimits limits;
  limits.limit_rows("sam", "encode", 6);
  limits.limit_rows("sam", "encode", 9);
  CHECK(limits.max_rows("sam", "encode") == 4);  // powers of two, as padded calls have
  CHECK(limits.learned().empty());
  limits.limit_rows("sam", "encode", 0);
  CHECK(limits.max_rows("sam", "encode") == 1);
}

TEST_CASE("if a single row does not fit, the number of rows was not the cause, and no limit is learned") {
  CallLimits limits;
  limits.limit_rows("sam", "encode", 8);
  for (const int rows : {16, 4, 2, 4}) limits.ran_out("sam", "encode", rows);
  CHECK(limits.max_rows("sam", "encode") == 1);
  limits.ran_out("sam", "encode", 1);
  CHECK(limits.max_rows("sam", "encode") == 8);
  CHECK(limits.learned().empty());
}

}  // namespace
}  // namespace millrace
