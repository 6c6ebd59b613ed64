#include <fmt/format.h>

#include "gpu/ops/finish_rows.hpp"
#include "models/package.hpp"
#include "models/task.hpp"
#include "models/yaml_section.hpp"

namespace millrace {

struct SemanticTask;

namespace {

void read(YamlSection& root, YamlSection& output, Package& package) {
  root.refuse("max_boxes", "has no meaning for a semantic segmenter; remove it");
  package.classes = root.texts("classes");
  const auto classes = static_cast<std::size_t>(package.number("channels"));
  if (package.classes.size() != classes)
    root.fail("classes", fmt::format("has {} names, but output.channels is {}; a channel has one name",
                                     package.classes.size(), classes));
  const bool softmax = package.activation() == Activation::softmax;
  package.heatmaps = output.has("kind") && output.choice<bool>("kind", {{"labels", false}, {"heatmaps", true}});
  if (softmax && classes == 1)
    root.fail("output", "activation cannot be softmax with one channel, since that is always 1; use sigmoid");
  if (package.heatmaps) {
    output.refuse("threshold", "has no meaning for heatmaps; remove it, and set semantic.point_threshold in a run");
  } else if (softmax) {
    output.refuse("threshold", "has no meaning if activation is softmax; remove it");
  } else if (classes == 1 || output.has("threshold")) {
    package.threshold = output.real("threshold");
    if (package.activation() == Activation::sigmoid && !(*package.threshold > 0 && *package.threshold < 1))
      output.fail("threshold", "expected a probability above 0 and below 1");
  }
}

std::vector<Method> methods(const Package& package) {
  std::vector<Side> images{'B', static_cast<std::int64_t>(package.channels.size())},
      logits{'B', package.number("channels")};
  // The order of a window's axes, as the model sees them.
  std::vector<Side> axes{'H', 'W'};
  if (package.input.depth > 0)
    axes = package.input.columns_first ? std::vector<Side>{'W', 'H', 'D'} : std::vector<Side>{'D', 'H', 'W'};
  images.insert(images.end(), axes.begin(), axes.end());
  logits.insert(logits.end(), axes.begin(), axes.end());
  return {{.name = "forward",
           .part = "segmenter",
           .row = RowKind::window,
           .maximum = package.max_batch,
           .inputs = {{"images", images, std::nullopt}},
           .outputs = {{"logits", logits}}}};
}

std::string describe_output(const Package& package) {
  std::string text = fmt::format("{} channels for each {}, {}", package.number("channels"),
                                 package.input.depth > 0 ? "voxel" : "pixel", activation_text(package));
  if (package.heatmaps) text += ", heatmaps";
  if (package.threshold) text += fmt::format(", threshold {}", *package.threshold);
  return text;
}

}  // namespace

/// A semantic segmenter: a class for each pixel. `forward` takes windows and returns logits of the same size.
template <>
Task make_task<SemanticTask>() {
  return {.name = "semantic",
          .model = "semantic segmenter",
          .method_names = {"forward"},
          .output = {{.name = "channels", .highest = 254}, activation_key()},
          .native_precision = Precision::bf16,
          .older_precision = Precision::fp16,
          .of_windows = true,
          .read = read,
          .methods = methods,
          .describe = describe_output};
}

}  // namespace millrace
