#include <fmt/format.h>

#include "models/package.hpp"
#include "models/task.hpp"
#include "models/yaml_section.hpp"

namespace millrace {

struct DetectTask;

namespace {

constexpr int v8 = 0;  // index of the word in OutputKey::words of `layout`

void read(YamlSection& root, YamlSection&, Package& package) {
  package.classes = root.texts("classes");
  root.refuse("max_boxes", "has no meaning for a detector; remove it");
}

std::vector<Method> methods(const Package& package) {
  const auto classes = static_cast<std::int64_t>(package.classes.size());
  const std::int64_t boxes = package.number("boxes");
  const std::vector<Side> shape =
      package.number("layout") == v8 ? std::vector<Side>{'B', 4 + classes, boxes} : std::vector<Side>{'B', boxes, 6};
  return {{.name = "forward",
           .part = "detector",
           .row = RowKind::picture,
           .maximum = package.max_batch,
           .inputs = {picture_inputs()},
           .outputs = {{"detections", shape}}}};
}

std::string describe_output(const Package& package) {
  return fmt::format("{}, {} boxes, {} classes", package.number("layout") == v8 ? "v8" : "end_to_end",
                     package.number("boxes"), package.classes.size());
}

}  // namespace

/// A detector: boxes, scores and classes of objects.
/// `layout` names the form of its output, and `boxes` is the number of boxes in the output of one picture.
/// - `v8`, for YOLO with NMS: [B, 4 + classes, boxes] has centre x, y, w, h in input pixels, class probabilities.
/// - `end_to_end`, for detectors without NMS: [B, boxes, 6] has x0, y0, x1, y1 in input pixels, score, class number.
template <>
Task make_task<DetectTask>() {
  return {.name = "detect",
          .model = "detector",
          .method_names = {"forward"},
          .output = {{.name = "layout", .words = {"v8", "end_to_end"}}, {.name = "boxes", .highest = 1'000'000}},
          // fp16 even where bf16 exists: activations of detectors are small, and boxes need the longer mantissa.
          // docs/performance_cpu.md has figures.
          .native_precision = Precision::fp16,
          .older_precision = Precision::fp16,
          .read = read,
          .methods = methods,
          .describe = describe_output};
}

}  // namespace millrace
