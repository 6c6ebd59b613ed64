#include <doctest/doctest.h>

#include "gpu/ops/finish_rows.hpp"
#include "tests/models/package_checks.hpp"

namespace millrace {
namespace {

const char* classifier_yaml() {
  return R"(schema: 1
name: tiny-classifier
task: classify
architecture: ResNet
input: {width: 64, height: 48, colour: bgr, scale: 1.0, mean: [0, 0, 0], std: [1, 1, 1], resize: stretch, filter: pil_bilinear_antialias}
output: {activation: sigmoid}
classes: [dry, wet]
max_batch: 8
licence: MIT
files: {model.ts: HASH}
)";
}

std::string regressor_yaml() {
  return replaced(
      replaced(replaced(classifier_yaml(), "task: classify", "task: regress"), "activation: sigmoid", "values: 2"),
      "classes: [dry, wet]", "names: [age, mass]");
}

TEST_CASE("all of a classifier's package is read") {
  const TemporaryFolder folder;
  for (const auto& [word, activation, shown] : {std::tuple{"softmax", Activation::softmax, "2 classes, softmax"},
                                                {"sigmoid", Activation::sigmoid, "2 classes, sigmoid"},
                                                {"none", Activation::none, "2 classes, no activation"}}) {
    write_package(folder.path(), replaced(classifier_yaml(), "sigmoid", word));
    const Package package = read_package(folder.path());
    CHECK(package.activation() == activation);
    CHECK(package.method("classify").row == RowKind::picture);
    CHECK(inputs_of(package, "classify", {5, 0})[0].shape == std::vector<std::int64_t>{5, 3, 48, 64});
    CHECK(outputs_of(package, "classify", {5, 0})[0].shape == std::vector<std::int64_t>{5, 2});
    CHECK(describe(package).find(shown) != std::string::npos);
    CHECK(describe(package).find("classes       dry, wet\n") != std::string::npos);
  }
}

TEST_CASE("all of a regressor's package is read") {
  const TemporaryFolder folder;
  write_package(folder.path(), regressor_yaml());
  const Package package = read_package(folder.path());
  CHECK(package.value_names == std::vector<std::string>{"age", "mass"});
  CHECK(outputs_of(package, "regress", {5, 0})[0].shape == std::vector<std::int64_t>{5, 2});
  CHECK(describe(package).find("output        2 values for a picture\n") != std::string::npos);
  CHECK(describe(package).find("values        age, mass\n") != std::string::npos);
}

TEST_CASE("wrong keys of a classifier's or a regressor's model.yaml") {
  check_table(classifier_yaml(),
              {
                  {"activation: sigmoid", "activation: tanh", {"output.activation: expected one of softmax, sigmoid"}},
                  {"{activation: sigmoid}", "{}", {"output.activation: is missing"}},
                  {"classes: [dry, wet]\n", "", {"classes: is missing"}},
                  {"sigmoid}\nclasses: [dry, wet]", "softmax}\nclasses: [wet]", {"softmax with one class"}},
                  {"licence: MIT", "licence: MIT\nmax_boxes: 3", {"max_boxes: has no meaning for a classifier"}},
                  {"licence: MIT", "licence: MIT\nmatrix: {file: a, bias: no}", {"matrix: is not a key"}},
              });
  check_table(regressor_yaml(),
              {
                  {"names: [age, mass]", "names: [age]", {"names: has 1 names, but output.values is 2"}},
                  {"names: [age, mass]", "names: [age, age]", {"names: has 'age' twice"}},
                  {"names: [age, mass]", "classes: [age, mass]", {"classes: has no meaning for a regressor"}},
                  {"values: 2", "values: 0", {"output.values: expected a whole number, 1 to 1000"}},
              });
}

}  // namespace
}  // namespace millrace
