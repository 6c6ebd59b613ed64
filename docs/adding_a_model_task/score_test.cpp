#include "stages/score.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

Package scorer_package() {
  Package package = embedder_package("fake-scorer");
  package.task = &find_task("score");
  package.output = {{"values", {2}}};
  set_methods(package);
  return package;
}

// The picture's code, and half of it; NaN for code 13.
std::vector<Tensor> score(std::string_view, std::span<const Tensor> inputs) {
  Tensor values = Tensor::empty({inputs[0].shape[0], 2});
  for (std::int64_t row = 0; row < inputs[0].shape[0]; ++row) {
    const auto code = static_cast<float>(code_of(inputs[0], row));
    float* const to = values.host<float>().data() + 2 * row;
    to[0] = code;
    to[1] = code == 13 ? std::numeric_limits<float>::quiet_NaN() : code / 2;
  }
  return {values};
}

}  // namespace

TEST_CASE("each picture has its own scores, and one without a number fails alone") {
  StageFixture fixture;
  fixture.add_view_without_detector();
  const std::string model = fixture.add_model(scorer_package(), score, true);
  RecipeLane lane(fixture, {"preprocess", "score"}, {{"score", {{"model", {model}}}}});
  Batch batch = batch_of({7, 13, 80});
  lane.run(batch);
  CHECK(line_of(*batch.frames[0], fixture.context())["scores"] == std::vector<double>{7, 3.5});
  CHECK(line_of(*batch.frames[1], fixture.context())["reason"] == "non_finite");
  CHECK(line_of(*batch.frames[2], fixture.context())["scores"] == std::vector<double>{80, 40});
  CHECK(fixture.counters[scorer_calls].count() == 1);
}

}  // namespace millrace
