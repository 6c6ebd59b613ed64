// The optimum and the percentiles of `millrace profile`, and the inputs that it makes.
#include "run/profile.hpp"

#include <doctest/doctest.h>

#include "run/profile_inputs.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

ProfileRow row_of(int size, double rate) {
  ProfileRow row;
  row.size = size;
  if (rate > 0) row.times = CallTimes{5, size / rate, 0, 0};
  return row;
}

TEST_CASE("the optimum is the smallest size within 3 % of the best rate") {
  const auto best = [](const std::vector<ProfileRow>& rows) { return optimum(rows); };
  CHECK(best({row_of(1, 50), row_of(2, 97.5), row_of(4, 98), row_of(8, 100)}) == 1);
  CHECK(best({row_of(1, 50), row_of(2, 96.5), row_of(4, 98), row_of(8, 100)}) == 2);
  CHECK(best({row_of(8, 100), row_of(4, 98), row_of(1, 50)}) == 1);  // in any order
  CHECK(best({row_of(1, 100), row_of(2, 90)}) == 0);
  CHECK(best({row_of(1, 10), row_of(2, 20), row_of(4, 0)}) == 1);  // 0: memory ran out
  CHECK_FALSE(best({row_of(1, 0), row_of(2, 0)}));
  CHECK_FALSE(best({}));
}

TEST_CASE("percentiles are measured times, by nearest rank") {
  const CallTimes few = times_of({3, 1, 2});
  CHECK(few.calls == 3);
  CHECK(few.median_s == 2);
  CHECK(few.p5_s == 1);
  CHECK(few.p95_s == 3);
  std::vector<double> many;
  for (int i = 100; i >= 1; --i) many.push_back(i);
  const CallTimes times = times_of(many);
  CHECK(times.median_s == 50);
  CHECK(times.p5_s == 5);
  CHECK(times.p95_s == 95);
  CHECK(times_of({4}).p95_s == 4);
}

TEST_CASE("boxes of the grid are inside the picture, and depend on the seed") {
  const auto boxes = grid_of_boxes(90, 70, 1);
  CHECK(boxes.size() == 16);
  for (const PromptBox& box : boxes) {
    CHECK(box.x >= 0);
    CHECK(box.y >= 0);
    CHECK(box.width >= 90.0F / 8);
    CHECK(box.height >= 70.0F / 8);
    CHECK(box.x + box.width <= 90.001F);
    CHECK(box.y + box.height <= 70.001F);
  }
  CHECK(boxes.front().x == grid_of_boxes(90, 70, 1).front().x);
  CHECK(boxes.front().x != grid_of_boxes(90, 70, 2).front().x);
}

/// A tensor whose element n is `first` + n.
Tensor counting(std::vector<std::int64_t> shape, float first) {
  Tensor tensor = Tensor::empty(std::move(shape));
  for (float& value : tensor.host<float>()) value = first++;
  return tensor;
}

TEST_CASE("recorded pictures are repeated to any number of rows") {
  const Package package = embedder_package();
  const Method& method = package.methods.front();
  RecordedInputs recorded;
  Device host;
  CHECK_FALSE(recorded.has(package, method.name));
  const std::vector<std::int64_t> one{1, 3, side, side}, two{2, 3, side, side};
  const float values = 3.0F * side * side;
  recorded.add(package, method.name, std::vector{counting(two, 0)});
  recorded.add(package, method.name, std::vector{counting(one, 2 * values)});
  recorded.finish();
  recorded.add(package, method.name, std::vector{counting(one, 9 * values)});  // too late
  REQUIRE(recorded.has(package, method.name));
  const auto inputs = recorded.make(package, method, 5, host);
  REQUIRE(inputs.size() == 1);
  CHECK(inputs[0].shape == std::vector<std::int64_t>{5, 3, side, side});
  for (int row = 0; row < 5; ++row) CHECK(inputs[0].row(row).host<float>()[0] == values * static_cast<float>(row % 3));
}

TEST_CASE("boxes are repeated in the picture that had the most of them") {
  const Package package = segmenter_package();
  const Method& method = package.method("decode");
  const auto call = [&](std::int64_t boxes, float first) {
    auto embedding = specs_of(method.inputs, package.input, {1, boxes}, DType::f32).front();
    Tensor index = Tensor::empty({boxes}, DType::i64);
    for (auto& picture : index.host<std::int64_t>()) picture = 0;
    return std::vector{counting(embedding.shape, first), counting({boxes, 4}, first), index};
  };
  RecordedInputs recorded;
  Device host;
  recorded.add(package, method.name, call(1, 100));
  recorded.add(package, method.name, call(3, 500));
  recorded.add(package, method.name, call(2, 900));
  const auto inputs = recorded.make(package, method, 4, host);
  REQUIRE(inputs.size() == 3);
  CHECK(inputs[0].shape.front() == 1);
  CHECK(inputs[0].host<float>()[0] == 500);
  CHECK(inputs[1].shape == std::vector<std::int64_t>{4, 4});
  for (int row = 0; row < 4; ++row)
    CHECK(inputs[1].row(row).host<float>()[0] == static_cast<float>(500 + 4 * (row % 3)));
  CHECK(inputs[2].shape == std::vector<std::int64_t>{4});
  for (const auto picture : inputs[2].host<std::int64_t>()) CHECK(picture == 0);
}

}  // namespace
}  // namespace millrace
