#include "stages/categorize.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

struct World : StageFixture {
  // An embedder with vectors (code, 1, code / 2, -code) and a matrix of four classes.
  explicit World(std::vector<float> matrix, bool bias) {
    Package package = embedder_package();
    package.classes = {"a", "b", "c", "d"};
    package.matrix = ClassMatrix{"classes.f32", bias, std::make_shared<const std::vector<float>>(std::move(matrix))};
    add_view_without_detector();
    model = add_model(package, embedder_by_code(), true);
  }

  // A classifier that returns code / 100, 0.5 and 0.25, and for code 13 two numbers and infinity.
  // `activation` is the index of the word in OutputKey::words.
  explicit World(int activation) {
    Package package = embedder_package("fake-classifier");
    package.task = &find_task("classify");
    package.output = {{"activation", {activation}}};
    package.classes = {"a", "b", "c"};
    set_methods(package);
    add_view_without_detector();
    const auto classify = [](std::string_view, std::span<const Tensor> inputs) {
      Tensor logits = Tensor::empty({inputs[0].shape[0], 3});
      for (std::int64_t row = 0; row < inputs[0].shape[0]; ++row) {
        const int code = code_of(inputs[0], row);
        const float last = code == 13 ? -std::numeric_limits<float>::infinity() : 0.25F;
        std::ranges::copy(std::array{static_cast<float>(code) / 100, 0.5F, last},
                          logits.host<float>().begin() + static_cast<std::ptrdiff_t>(3 * row));
      }
      return std::vector<Tensor>{logits};
    };
    model = add_model(package, classify, true);
  }

  std::vector<nlohmann::json> run(const std::vector<int>& codes, OptionValues options = {}) {
    options["model"] = {model};
    RecipeLane lane(*this, {"preprocess", {"scenes", "categorize"}}, {{"scenes", options}});
    Batch batch = batch_of(codes);
    lane.run(batch);
    std::vector<nlohmann::json> lines;
    for (const auto& frame : batch.frames) lines.push_back(line_of(*frame, context()));
    return lines;
  }

  std::string model;
};

// The logits are 0.01 * code, 0.5, 0, 0.5. The bias adds 1 to the third.
const std::vector<float> matrix{0.01F, 0, 0, 0, 0, 0.5F, 0, 0, 0, 0, 0, 0, 0, 0.5F, 0, 0};

std::vector<float> with_bias(std::vector<float> values) {
  values.insert(values.end(), {0, 0, 1, 0});
  return values;
}

std::vector<double> softmax(std::vector<double> logits) {
  double sum = 0;
  for (double& logit : logits) sum += logit = std::exp(logit);
  for (double& logit : logits) logit /= sum;
  return logits;
}

}  // namespace

TEST_CASE("the most likely classes come first, equal ones by their number") {
  World world(matrix, false);
  const auto lines = world.run({100, 20});
  const auto expected = softmax({1, 0.5, 0, 0.5});
  const auto& top = lines[0]["scenes"]["top"];
  REQUIRE(top.size() == 4);
  const std::array order{0, 1, 3, 2};
  for (std::size_t i = 0; i < 4; ++i) {
    CHECK(top[i][0] == order[i]);
    CHECK(top[i][1] == std::string(1, static_cast<char>('a' + order[i])));
    CHECK(top[i][2].get<double>() == doctest::Approx(expected[static_cast<std::size_t>(order[i])]).epsilon(1e-5));
  }
  CHECK(lines[1]["scenes"]["top"][0][1] == "b");
}

TEST_CASE("bias, temperature, top and threshold") {
  World world(with_bias(matrix), true);
  const auto top = [&](const OptionValues& options) { return world.run({50}, options).front()["scenes"]["top"]; };
  CHECK(top({})[0][2].get<double>() == doctest::Approx(softmax({0.5, 0.5, 1, 0.5})[2]).epsilon(1e-5));
  CHECK(top({{"temperature", {"0.25"}}})[0][2].get<double>() ==
        doctest::Approx(softmax({2, 2, 4, 2})[2]).epsilon(1e-5));
  CHECK(top({{"top", {"2"}}}).size() == 2);
  CHECK(top({{"threshold", {"0.3"}}}).size() == 1);
  CHECK(top({{"threshold", {"0.9"}}}).empty());
}

TEST_CASE("probabilities agree with a slow computation, for vectors of every length") {
  for (const std::size_t dimensions : {1, 2, 7, 8, 9, 31, 1280}) {
    CAPTURE(dimensions);
    std::vector<float> values(5 * dimensions + 5), vector(dimensions);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i)) / 4;
    for (std::size_t i = 0; i < dimensions; ++i) vector[i] = std::cos(static_cast<float>(3 * i));
    std::vector<double> logits;
    for (std::size_t id = 0; id < 5; ++id) {
      double sum = values[5 * dimensions + id];
      for (std::size_t i = 0; i < dimensions; ++i) sum += static_cast<double>(values[id * dimensions + i]) * vector[i];
      logits.push_back(sum);
    }
    const auto expected = softmax(logits);
    const auto found = class_probabilities(class_logits(values, true, vector), Activation::softmax, 1);
    REQUIRE(found.size() == 5);
    for (std::size_t id = 0; id < 5; ++id) CHECK(found[id] == doctest::Approx(expected[id]).epsilon(1e-9));
  }
}

TEST_CASE("a classifier's numbers become probabilities as its package says") {
  const auto sigmoid = [](double logit) { return 1 / (1 + std::exp(-logit)); };
  const std::vector<double> logits{0.9, 0.5, 0.25};
  const std::vector<std::vector<double>> expected{softmax(logits), {sigmoid(0.9), sigmoid(0.5), sigmoid(0.25)}, logits};
  for (int activation = 0; activation < 3; ++activation) {
    CAPTURE(activation);
    World world(activation);
    const auto lines = world.run({90, 13, 20});
    const auto& top = lines[0]["scenes"]["top"];
    REQUIRE(top.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(top[i][0] == i);
      CHECK(top[i][2].get<double>() ==
            doctest::Approx(expected.at(static_cast<std::size_t>(activation))[i]).epsilon(1e-5));
    }
    CHECK(lines[1]["reason"] == "non_finite");
    CHECK(lines[2]["scenes"]["top"][0][1] == "b");
    CHECK(world.counters[categorizer_calls].count() == 1);
  }
}

TEST_CASE("a temperature divides the logits of independent classes too, and a classifier without logits refuses it") {
  World labels(1);
  const auto top = labels.run({90}, {{"temperature", {"2"}}, {"threshold", {"0.55"}}})[0]["scenes"]["top"];
  REQUIRE(top.size() == 2);
  CHECK(top[0][2].get<double>() == doctest::Approx(1 / (1 + std::exp(-0.45))).epsilon(1e-5));
  World probabilities(2);
  CHECK_THROWS_WITH_AS(
      probabilities.run({90}, {{"temperature", {"2"}}}),
      doctest::Contains("scenes.temperature divides logits, but the package fake-classifier gives probabilities"),
      UsageError);
}

TEST_CASE("a package without a matrix is refused with the stage's name") {
  StageFixture fixture;
  fixture.add_view_without_detector();
  const std::string folder = fixture.add_model(embedder_package(), embedder_by_code(), true);
  CHECK_THROWS_WITH_AS(
      RecipeLane(fixture, {"preprocess", {"scenes", "categorize"}}, {{"scenes", {{"model", {folder}}}}}),
      doctest::Contains("scenes.model: the package fake-embedder has no matrix of classes"), UsageError);
}

}  // namespace millrace
