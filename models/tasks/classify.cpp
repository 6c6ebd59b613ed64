#include <fmt/format.h>

#include "gpu/ops/finish_rows.hpp"
#include "models/package.hpp"
#include "models/task.hpp"
#include "models/yaml_section.hpp"

namespace millrace {

struct ClassifyTask;

namespace {

void read(YamlSection& root, YamlSection& /*output*/, Package& package) {
  root.refuse("max_boxes", "has no meaning for a classifier; remove it");
  package.classes = root.texts("classes");
  if (package.classes.size() == 1 && package.activation() == Activation::softmax)
    root.fail("output", "activation cannot be softmax with one class, since that is always 1; use sigmoid");
}

std::vector<Method> methods(const Package& package) {
  return {{.name = "classify",
           .part = "classifier",
           .row = RowKind::picture,
           .maximum = package.max_batch,
           .inputs = {picture_inputs()},
           .outputs = {{"logits", {'B', static_cast<std::int64_t>(package.classes.size())}}}}};
}

std::string describe_output(const Package& package) {
  return fmt::format("{} classes, {}", package.classes.size(), activation_text(package));
}

}  // namespace

/// A classifier: a logit or a probability of each class for a picture.
/// An embedder with a matrix of classes is one, too (embed.cpp). It gives vectors as well.
template <>
Task make_task<ClassifyTask>() {
  return {.name = "classify",
          .model = "classifier",
          .method_names = {"classify"},
          .output = {activation_key()},
          .native_precision = Precision::fp16,
          .older_precision = Precision::fp16,
          .read = read,
          .methods = methods,
          .describe = describe_output};
}

}  // namespace millrace
