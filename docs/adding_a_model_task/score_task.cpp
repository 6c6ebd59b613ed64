#include <fmt/format.h>

#include "models/package.hpp"
#include "models/task.hpp"
#include "models/yaml_section.hpp"

namespace millrace {

struct ScoreTask;

namespace {

void read(YamlSection& root, YamlSection& /*output*/, Package& /*package*/) {
  root.refuse("classes", "has no meaning for a scorer; remove it");
  root.refuse("max_boxes", "has no meaning for a scorer; remove it");
}

std::vector<Method> methods(const Package& package) {
  return {{.name = "score",
           .part = "scorer",
           .row = RowKind::picture,
           .maximum = package.max_batch,
           .inputs = {picture_inputs()},
           .outputs = {{"scores", {'B', package.number("values")}}}}};
}

std::string describe_output(const Package& package) {
  return fmt::format("{} numbers for a picture", package.number("values"));
}

}  // namespace

/// A scorer: some numbers for each picture, such as its quality.
template <>
Task make_task<ScoreTask>() {
  return {.name = "score",
          .model = "scorer",
          .method_names = {"score"},
          .output = {{.name = "values", .highest = 16}},
          .native_precision = Precision::fp16,
          .older_precision = Precision::fp16,
          .read = read,
          .methods = methods,
          .describe = describe_output};
}

}  // namespace millrace
