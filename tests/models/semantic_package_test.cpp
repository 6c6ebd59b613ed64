#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

constexpr const char* constants = "scale: 1.0, mean: [0, 0, 0], std: [1, 1, 1]";

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

TEST_CASE("channels may be heatmaps, which need no threshold") {
  for (const char* activation : {"none", "sigmoid"}) {
    const TemporaryFolder folder;
    write_package(folder.path(),
                  replaced(semantic_yaml(), "sigmoid, threshold: 0.42", std::string(activation) + ", kind: heatmaps"));
    const Package package = read_package(folder.path());
    CHECK(package.heatmaps);
    CHECK_FALSE(package.threshold);
    CHECK(describe(package).find("1 channels for each pixel, ") != std::string::npos);
    CHECK(describe(package).find(", heatmaps\n") != std::string::npos);
  }
}

TEST_CASE("a model may take the channels of the file") {
  for (const auto& [count, numbers, text] :
       {std::tuple{1, "[7]", "64 x 48 with the channel of the file"},
        {4, "[1, 2, 3, 4]", "64 x 48 with the 4 channels of the file"},
        {16, "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]", "64 x 48 with the 16 channels of the file"}}) {
    const TemporaryFolder folder;
    write_package(folder.path(),
                  replaced(replaced(replaced(semantic_yaml(), "colour: bgr", "channels: " + std::to_string(count)),
                                    "mean: [0, 0, 0]", std::string("mean: ") + numbers),
                           "std: [1, 1, 1]", std::string("std: ") + numbers));
    const Package package = read_package(folder.path());
    CHECK(package.input.keeps_values);
    CHECK(package.channels.size() == static_cast<std::size_t>(count));
    CHECK(package.channels.back().mean == doctest::Approx(count == 1 ? 7 : count));
    CHECK(inputs_of(package, "forward", {5, 0})[0].shape == std::vector<std::int64_t>{5, count, 48, 64});
    CHECK(describe(package).find(text) != std::string::npos);
  }
}

TEST_CASE("a model of RGB may ask for micrometres a pixel") {
  const TemporaryFolder folder;
  write_package(folder.path(), semantic_yaml());
  CHECK(read_package(folder.path()).mpp == 0);
  write_package(folder.path(), replaced(semantic_yaml(), "colour: bgr", "colour: bgr, mpp: 0.5"));
  const Package package = read_package(folder.path());
  CHECK(package.mpp == 0.5);
  CHECK(describe(package).find("64 x 48 BGR with 0.5 micrometres a pixel") != std::string::npos);
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
    CHECK(package.channels == std::vector<Scaling>{{.mean = 0.5F, .std = 2.0F}});
    CHECK(inputs_of(package, "forward", {5, 0})[0].shape ==
          (columns_first ? std::vector<std::int64_t>{5, 1, 64, 48, 32} : std::vector<std::int64_t>{5, 1, 32, 48, 64}));
    CHECK(describe(package).find(columns_first ? "64 x 48 x 32 volumes as [x, y, z]"
                                               : "64 x 48 x 32 volumes as [z, y, x]") != std::string::npos);
  }
}

TEST_CASE("volumes may have several channels and an orientation") {
  const TemporaryFolder folder;
  write_package(
      folder.path(),
      replaced(replaced(semantic_yaml(), "height: 48, colour: bgr",
                        "height: 48, depth: 32, axes: zyx, channels: 2, orientation: LPS, spacing: [1, 0, 2.5]"),
               "mean: [0, 0, 0], std: [1, 1, 1]", "mean: [0.5, 7], std: [2, 3]"));
  const Package package = read_package(folder.path());
  CHECK(package.channels == std::vector<Scaling>{{.mean = 0.5F, .std = 2.0F}, {.mean = 7.0F, .std = 3.0F}});
  CHECK(package.orientation == "LPS");
  CHECK(package.spacing_mm == std::array{1.0, 0.0, 2.5});
  CHECK(inputs_of(package, "forward", {5, 0})[0].shape == std::vector<std::int64_t>{5, 2, 32, 48, 64});
  CHECK(describe(package).find("volumes as [z, y, x] with voxels of 1 x any x 2.5 mm and 2 channels in LPS") !=
        std::string::npos);
}

TEST_CASE("mistakes in a semantic segmenter's model.yaml") {
  check_table(semantic_yaml(),
              {
                  {"std: [1, 1, 1]", "std: [1, 1, 1], resize: stretch", {"input.resize", "model of windows"}},
                  {"height: 48", "height: 48, axes: xyz", {"input.axes", "no meaning without depth"}},
                  {"height: 48", "height: 48, spacing: [1, 1, 1]", {"input.spacing", "use mpp for slides"}},
                  {"colour: bgr", "colour: bgr, mpp: 0", {"input.mpp", "above 0, and up to 1000"}},
                  {"colour: bgr", "colour: bgr, mpp: 1000.5", {"input.mpp", "above 0, and up to 1000"}},
                  {"colour: bgr", "channels: 3, mpp: 1", {"input.mpp", "only RGB of 8 bits is resampled"}},
                  {"colour: bgr", "depth: 8, axes: xyz, mpp: 1", {"input.mpp", "use spacing"}},
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
                  {"sigmoid,", "sigmoid, kind: heatmaps,", {"output.threshold", "no meaning for heatmaps"}},
                  {"sigmoid,", "sigmoid, kind: points,", {"output.kind", "labels, heatmaps"}},
                  {"max_batch: 8", "max_batch: 8\nmax_boxes: 4", {"max_boxes: has no meaning"}},
                  {constants, "zscore: none, channel_wise: no", {"input.zscore", "all, nonzero, nonzero_box"}},
                  {constants, "zscore: all", {"input.channel_wise: is missing"}},
                  {constants, "zscore: all, channel_wise: no, scale: 1", {"input.scale", "no meaning with zscore"}},
                  {constants, "percentiles: [5, 95], channel_wise: no", {"input.clip_to_percentiles: is missing"}},
                  {constants,
                   "percentiles: [95, 5], clip_to_percentiles: no, channel_wise: no",
                   {"input.percentiles", "from 0 to 100, the lower one first"}},
                  {constants,
                   "percentiles: [5, 100.5], clip_to_percentiles: no, channel_wise: no",
                   {"input.percentiles", "from 0 to 100"}},
                  {constants,
                   "percentiles: [5, 95], clip_to_percentiles: no, channel_wise: no, zscore: all",
                   {"input.zscore", "contradicts percentiles"}},
                  {constants,
                   "percentiles: [5, 95], clip_to_percentiles: no, channel_wise: no, clip: [0, 1]",
                   {"input.clip", "use clip_to_percentiles"}},
                  {"scale: 1.0", "scale: 1.0, clip: [2, 2]", {"input.clip", "the lower one first"}},
                  {"scale: 1.0", "scale: 1.0, clip: [0, 1, 0, 1]", {"input.clip", "expected a list of 2 numbers"}},
                  {"scale: 1.0", "scale: 1.0, channel_wise: no", {"input.channel_wise", "without zscore"}},
                  {"scale: 1.0", "scale: 1.0, clip_to_percentiles: no", {"clip_to_percentiles", "without percentiles"}},
                  {"colour: bgr, scale: 1.0, mean: [0, 0, 0], std: [1, 1, 1]",
                   "depth: 8, axes: xyz, zscore: all, channel_wise: no",
                   {"input.channel_wise", "one channel"}},
              });
}

TEST_CASE("the scalings of a package are read and described") {
  const auto read = [](const char* from, const char* to) {
    const TemporaryFolder folder;
    write_package(folder.path(), replaced(semantic_yaml(), from, to));
    return read_package(folder.path());
  };
  const auto three = [](const Scaling& scaling) { return std::vector<Scaling>(3, scaling); };
  const Package plain = read("scale: 1.0", "scale: 1.0");
  CHECK(plain.channels == three({}));
  CHECK_FALSE(plain.channel_wise);
  CHECK_FALSE(plain.scaled_before_resampling);
  const Package clipped = read("scale: 1.0", "scale: 2.0, clip: [-1004, 1588.5]");
  CHECK(clipped.channels == three({.clip = {{-1004, 1588.5F}}, .scale = 2}));
  CHECK(describe(clipped).find("BGR, clipped to -1004 .. 1588.5, (v * 2 - [0, 0, 0]) / [1, 1, 1]") !=
        std::string::npos);
  const Package zscore = read(constants, "zscore: nonzero, channel_wise: yes, clip: [-3, 3]");
  CHECK(zscore.channels == three({.kind = Scaling::Kind::zscore, .clip = {{-3, 3}}, .of = Scaling::Of::nonzero}));
  CHECK(zscore.channel_wise);
  CHECK(describe(zscore).find("clipped to -3 .. 3, z-score of the values that are not zero of each channel") !=
        std::string::npos);
  const Package percentiles = read("colour: bgr, scale: 1.0, mean: [0, 0, 0], std: [1, 1, 1]",
                                   "depth: 8, axes: zyx, percentiles: [0.1, 99.9], clip_to_percentiles: yes");
  CHECK(percentiles.channels ==
        std::vector<Scaling>{
            {.kind = Scaling::Kind::percentiles, .percentiles = {0.1, 99.9}, .clip_to_percentiles = true}});
  CHECK(describe(percentiles).find("percentiles 0.1 and 99.9 to 0 and 1, clipped") != std::string::npos);
}

constexpr const char* alike = "colour: bgr, scale: 1.0, mean: [0, 0, 0], std: [1, 1, 1]";

TEST_CASE("each channel may have a scaling of its own") {
  const char* const list = R"(channels:
    - {clip: [-1000, 1000], scale: 0.5, mean: 40, std: 200}
    - {zscore: nonzero_box, clip: [0, 9]}
    - {percentiles: [0.5, 99.5], clip_to_percentiles: yes}
    - {scale: 1, mean: 0, std: 1})";
  const std::vector<Scaling> expected{
      {.clip = {{-1000, 1000}}, .scale = 0.5F, .mean = 40, .std = 200},
      {.kind = Scaling::Kind::zscore, .clip = {{0, 9}}, .of = Scaling::Of::nonzero_box},
      {.kind = Scaling::Kind::percentiles, .percentiles = {0.5, 99.5}, .clip_to_percentiles = true},
      {}};
  for (const bool volume : {false, true}) {
    const TemporaryFolder folder;
    write_package(folder.path(), replaced(replaced(semantic_yaml(), "input: {width: 64, height: 48, ",
                                                   std::string("input:\n  width: 64\n  height: 48\n  ") +
                                                       (volume ? "depth: 32\n  axes: xyz\n  " : "")),
                                          std::string(alike) + "}", list));
    const Package package = read_package(folder.path());
    CHECK(package.channels == expected);
    CHECK(package.channel_wise);
    CHECK(package.input.keeps_values == !volume);
    CHECK(inputs_of(package, "forward", {5, 0})[0].shape ==
          (volume ? std::vector<std::int64_t>{5, 4, 64, 48, 32} : std::vector<std::int64_t>{5, 4, 48, 64}));
    CHECK(describe(package).find(
              std::string(volume ? "and 4 channels" : "the 4 channels of the file") +
              ", channel 0: clipped to -1000 .. 1000, (v * 0.5 - [40]) / [200]; channel 1: clipped to 0 .. 9, z-score "
              "of the values in the box of those that are not zero; channel 2: percentiles 0.5 and 99.5 to 0 and 1, "
              "clipped; channel 3: (v * 1 - [0]) / [1]\n") != std::string::npos);
  }
}

TEST_CASE("a list may scale the planes of a colour") {
  const TemporaryFolder folder;
  write_package(folder.path(), replaced(semantic_yaml(), alike,
                                        "colour: bgr, mpp: 0.5, channels: [{zscore: all}, {scale: 1, mean: 2, std: 3}, "
                                        "{scale: 1, mean: 4, std: 5}]"));
  const Package package = read_package(folder.path());
  CHECK(package.input.bgr);
  CHECK_FALSE(package.input.keeps_values);
  CHECK(package.mpp == 0.5);
  CHECK(package.channels ==
        std::vector<Scaling>{{.kind = Scaling::Kind::zscore}, {.mean = 2, .std = 3}, {.mean = 4, .std = 5}});
  CHECK(describe(package).find("BGR with 0.5 micrometres a pixel, channel 0: z-score of all values; channel 1: ") !=
        std::string::npos);
}

TEST_CASE("channels of a list that are scaled alike are described as one") {
  const TemporaryFolder folder;
  write_package(folder.path(), replaced(semantic_yaml(), alike, "channels: [{zscore: all}, {zscore: all}]"));
  CHECK(describe(read_package(folder.path())).find("channels of the file, z-score of all values of each channel\n") !=
        std::string::npos);
}

TEST_CASE("mistakes in the list of channels") {
  const auto with = [](const char* rest) { return std::string("channels: [{zscore: all}, ") + rest; };
  const std::string one = with("{scale: 1, mean: 0, std: 1}]");
  std::vector<Wrong> mistakes{
      {alike, with("7]"), {"model.yaml:5: input.channels: entry 1: expected a mapping, got '7'"}},
      {alike, "channels: []", {"input.channels", "1 to 16, got a list of 0"}},
      {alike, with("{}]"), {"input.channels[1].scale: is missing"}},
      {alike, with("{scale: 1, std: 1}]"), {"input.channels[1].mean: is missing"}},
      {alike, with("{scale: 1, mean: 0, std: 0}]"), {"model.yaml:5: input.channels[1].std: expected a number above 0"}},
      {alike, with("{scale: 1, mean: [0], std: 1}]"), {"input.channels[1].mean: expected a number, got a list of 1"}},
      {alike, with("{scale: 1, mean: 0, std: 1, clip: [1, 1]}]"), {"input.channels[1].clip", "the lower one first"}},
      {alike, with("{zscore: some}]"), {"input.channels[1].zscore", "all, nonzero, nonzero_box"}},
      {alike, with("{zscore: all, mean: 1}]"), {"input.channels[1].mean", "no meaning with zscore"}},
      {alike, with("{zscore: all, zscore: all}]"), {"input.channels[1].zscore", "appears twice"}},
      {alike,
       with("{zscore: all, percentiles: [1, 99], clip_to_percentiles: no}]"),
       {"input.channels[1].zscore", "contradicts percentiles"}},
      {alike, with("{percentiles: [1, 99]}]"), {"input.channels[1].clip_to_percentiles: is missing"}},
      {alike, with("{percentiles: [99, 1], clip_to_percentiles: no}]"), {"input.channels[1].percentiles"}},
      {alike, with("{zscore: all, channel_wise: yes}]"), {"input.channels[1].channel_wise", "for one channel"}},
      {alike, with("{zscore: all, colour: rgb}]"), {"input.channels[1].colour: is not a key of model.yaml"}},
      {alike, one + ", channel_wise: no", {"input.channel_wise", "with a list of channels"}},
      {alike, one + ", colour: rgb", {"input.channels: expected a list of 3 mappings, for the planes of colour"}},
      {alike, one + ", mpp: 1", {"input.mpp: contradicts channels"}},
      {"colour: bgr", "colour: bgr, channels: 3", {"input.colour: contradicts channels"}},
  };
  for (const char* key : {"scale: 1", "mean: [0, 0]", "std: [1, 1]", "clip: [0, 1]", "zscore: all",
                          "percentiles: [1, 99]", "clip_to_percentiles: no"}) {
    const std::string name(key, std::string_view(key).find(':'));
    mistakes.push_back({alike, one + ", " + key, {"input." + name + ": contradicts the list of channels"}});
  }
  std::string many = "channels: [{zscore: all}";
  for (int i = 1; i < 17; ++i) many += ", {zscore: all}";
  mistakes.push_back({alike, many + "]", {"input.channels", "a list of at most 16 mappings, got a list of 17"}});
  check_table(semantic_yaml(), mistakes);
}

}  // namespace
}  // namespace millrace
