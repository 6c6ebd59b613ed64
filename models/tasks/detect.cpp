#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/package.hpp"
#include "models/task.hpp"
#include "models/yaml_section.hpp"

namespace millrace {

struct DetectTask;

namespace {

constexpr int v8 = 1;  // index of the word in OutputKey::words of `layout`

std::int64_t anchors(const Package& package) {
  std::int64_t sum = 0;
  for (const int stride : package.numbers("strides"))
    sum += std::int64_t{package.input.width / stride} * (package.input.height / stride);
  return sum;
}

void read(YamlSection& root, YamlSection& output, Package& package) {
  for (const int stride : package.numbers("strides")) {
    if (package.input.width % stride != 0 || package.input.height % stride != 0)
      // Otherwise the cells would not cover the whole input.
      output.fail("strides", fmt::format("{} must divide width and height of the input, {} x {}", stride,
                                         package.input.width, package.input.height));
  }
  package.classes = root.texts("classes");
  root.refuse("max_boxes", "has no meaning for a detector; remove it");
}

std::vector<Method> methods(const Package& package) {
  const auto classes = static_cast<std::int64_t>(package.classes.size());
  const std::vector<Side> shape = package.number("layout") == v8
                                      ? std::vector<Side>{'B', 4 + classes, anchors(package)}
                                      : std::vector<Side>{'B', anchors(package), 5 + classes};
  return {{.name = "forward",
           .part = "detector",
           .row = RowKind::picture,
           .maximum = package.max_batch,
           .inputs = {picture_inputs()},
           .outputs = {{"detections", shape}}}};
}

std::string describe_output(const Package& package) {
  return fmt::format("{}, {} anchors of strides {}, {} classes", package.number("layout") == v8 ? "v8" : "yolox_raw",
                     anchors(package), fmt::join(package.numbers("strides"), ", "), package.classes.size());
}

}  // namespace

/// A detector: boxes, scores and classes of objects.
/// `layout` names the form of its output. A is the number of anchors: the cells of the grids of all strides.
/// - `yolox_raw`, for YOLOX: [B, A, 5 + classes] has x, y, log w, log h on the grid, objectness, class probabilities.
/// - `v8`, for YOLOv8 and YOLO11: [B, 4 + classes, A] has centre x, y, w, h in input pixels, class probabilities.
template <>
Task make_task<DetectTask>() {
  return {.name = "detect",
          .model = "detector",
          .method_names = {"forward"},
          .output = {{.name = "layout", .words = {"yolox_raw", "v8"}}, {.name = "strides", .count = 3}},
          // fp16 even where bf16 exists: activations of detectors are small, and boxes need the longer mantissa.
          // docs/performance.md has figures.
          .native_precision = Precision::fp16,
          .older_precision = Precision::fp16,
          .read = read,
          .methods = methods,
          .describe = describe_output};
}

}  // namespace millrace
