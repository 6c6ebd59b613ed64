#include <doctest/doctest.h>

#include <utility>

#include "tests/models/package_checks.hpp"

namespace millrace {
namespace {

const char* semantic_yaml() {
  return R"(schema: 1
name: tiny-semantic
task: semantic
architecture: W-Net
input: {width: 64, height: 48, colour: bgr, scale: 1.0, mean: [0, 0, 0], std: [1, 1, 1]}
output: {channels: 1, activation: sigmoid, threshold: 0.42}
classes: [vessel]
max_batch: 8
licence: MIT
files: {model.ts: HASH}
)";
}

TEST_CASE("all of a semantic segmenter's package is read") {
  const TemporaryFolder folder;
  write_package(folder.path(), semantic_yaml());
  const Package package = read_package(folder.path());
  CHECK(package.task->name == "semantic");
  CHECK(package.threshold == 0.42F);
  Package wider = package;
  wider.input.width = 128;
  CHECK(package.id() != wider.id());  // limits of memory of one size do not hold for another
  CHECK(package.method("forward").row == RowKind::window);
  CHECK(inputs_of(package, "forward", {5, 0})[0].shape == std::vector<std::int64_t>{5, 3, 48, 64});
  CHECK(outputs_of(package, "forward", {5, 0})[0].shape == std::vector<std::int64_t>{5, 1, 48, 64});
  CHECK(describe(package).find("1 channels for each pixel, sigmoid, threshold 0.42") != std::string::npos);
  CHECK(describe(package).find("8 windows a call") != std::string::npos);
}

TEST_CASE("windows of volumes have three sides, in the order of the model's axes") {
  for (const bool columns_first : {true, false}) {
    const TemporaryFolder folder;
    write_package(folder.path(),
                  replaced(replaced(semantic_yaml(), "height: 48, colour: bgr",
                                    std::string("height: 48, depth: 32, axes: ") + (columns_first ? "xyz" : "zyx")),
                           "mean: [0, 0, 0], std: [1, 1, 1]", "mean: [0.5], std: [2]"));
    const Package package = read_package(folder.path());
    CHECK(package.input.columns_first == columns_first);
    CHECK(package.channels == std::vector<std::pair<float, float>>{{0.5F, 2.0F}});
    CHECK(inputs_of(package, "forward", {5, 0})[0].shape ==
          (columns_first ? std::vector<std::int64_t>{5, 1, 64, 48, 32} : std::vector<std::int64_t>{5, 1, 32, 48, 64}));
    CHECK(describe(package).find(columns_first ? "64 x 48 x 32 volumes as [x, y, z]"
                                               : "64 x 48 x 32 volumes as [z, y, x]") != std::string::npos);
  }
}

TEST_CASE("mistakes in a semantic segmenter's model.yaml") {
  check_table(semantic_yaml(),
              {
                  {"std: [1, 1, 1]", "std: [1, 1, 1], resize: stretch", {"input.resize", "model of windows"}},
                  {"height: 48", "height: 48, axes: xyz", {"input.axes", "no meaning without depth"}},
                  {"height: 48", "height: 48, depth: 8, axes: yxz", {"input.axes", "xyz, zyx"}},
                  {"height: 48", "height: 48, depth: 8, axes: xyz", {"input.colour", "no meaning for volumes"}},
                  {"activation: sigmoid, threshold: 0.42", "activation: softmax", {"activation cannot be softmax"}},
                  {"activation: sigmoid", "activation: softplus", {"softmax, sigmoid, none"}},
                  {"threshold: 0.42", "threshold: 1.5", {"output.threshold", "a probability"}},
                  {", threshold: 0.42", "", {"output.threshold: is missing"}},
                  {"channels: 1", "channels: 2", {"classes: has 1 names, but output.channels is 2"}},
                  {"channels: 1, activation: sigmoid, threshold: 0.42}\nclasses: [vessel]",
                   "channels: 2, activation: softmax, threshold: 0.42}\nclasses: [a, b]",
                   {"output.threshold", "no meaning if activation is softmax"}},
                  {"max_batch: 8", "max_batch: 8\nmax_boxes: 4", {"max_boxes: has no meaning"}},
              });
}

}  // namespace
}  // namespace millrace
