#include "stages/regress.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

Package regressor_package() {
  Package package = embedder_package("fake-regressor");
  package.task = &find_task("regress");
  package.output = {{"values", {2}}};
  package.value_names = {"age", "body \"mass\""};
  set_methods(package);
  return package;
}

// A tenth of the picture's code, and its million; infinity for code 13.
std::vector<Tensor> regress(std::string_view, std::span<const Tensor> inputs) {
  Tensor values = Tensor::empty({inputs[0].shape[0], 2});
  for (std::int64_t row = 0; row < inputs[0].shape[0]; ++row) {
    const auto code = static_cast<float>(code_of(inputs[0], row));
    float* const to = values.host<float>().data() + 2 * row;
    to[0] = code / 10;
    to[1] = code == 13 ? std::numeric_limits<float>::infinity() : code * 1e6F;
  }
  return {values};
}

}  // namespace

TEST_CASE("each picture has its own values by name, and one with infinity fails alone") {
  StageFixture fixture;
  fixture.add_view_without_detector();
  const std::string model = fixture.add_model(regressor_package(), regress, true);
  RecipeLane lane(fixture, {"preprocess", {"patient", "regress"}, {"again", "regress"}},
                  {{"patient", {{"model", {model}}}}, {"again", {{"model", {model}}, {"exec_batch", {"1"}}}}});
  Batch batch = batch_of({7, 13, 80});
  lane.run(batch);
  const nlohmann::json first = line_of(*batch.frames[0], fixture.context());
  CHECK(first["patient"].dump() == R"({"age":0.7,"body \"mass\"":7000000.0})");
  CHECK(first["again"] == first["patient"]);
  const nlohmann::json failed = line_of(*batch.frames[1], fixture.context());
  CHECK(failed["reason"] == "non_finite");
  CHECK(failed["detail"].get<std::string>().find("its value 'body \"mass\"' is inf") != std::string::npos);
  CHECK(line_of(*batch.frames[2], fixture.context())["patient"]["age"] == 8);
  // One call of three pictures, then one for each of two that have not failed.
  CHECK(fixture.counters[regressor_calls].count() == 3);
}

}  // namespace millrace
