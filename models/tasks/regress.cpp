#include <fmt/format.h>

#include <set>

#include "models/package.hpp"
#include "models/task.hpp"
#include "models/yaml_section.hpp"

namespace millrace {

struct RegressTask;

namespace {

void read(YamlSection& root, YamlSection& /*output*/, Package& package) {
  root.refuse("classes", "has no meaning for a regressor; remove it, and name its values in the key names");
  root.refuse("max_boxes", "has no meaning for a regressor; remove it");
  package.value_names = root.texts("names");
  const auto values = static_cast<std::size_t>(package.number("values"));
  if (package.value_names.size() != values)
    root.fail("names", fmt::format("has {} names, but output.values is {}; a value has one name",
                                   package.value_names.size(), values));
  // They become the keys of an object.
  std::set<std::string_view> seen;
  for (const std::string& name : package.value_names) {
    if (!seen.insert(name).second)
      root.fail("names", fmt::format("has '{}' twice; give each value its own name", name));
  }
}

std::vector<Method> methods(const Package& package) {
  return {{.name = "regress",
           .part = "regressor",
           .row = RowKind::picture,
           .maximum = package.max_batch,
           .inputs = {picture_inputs()},
           .outputs = {{"values", {'B', package.number("values")}}}}};
}

std::string describe_output(const Package& package) {
  return fmt::format("{} values for a picture", package.number("values"));
}

}  // namespace

/// A regressor: some numbers for each picture, such as an age.
/// On a GPU it computes in float32 by default. Its values may be large, and float16 ends at 65504.
template <>
Task make_task<RegressTask>() {
  return {.name = "regress",
          .model = "regressor",
          .method_names = {"regress"},
          .output = {{.name = "values", .highest = 1000}},
          .native_precision = Precision::fp32,
          .older_precision = Precision::fp32,
          .read = read,
          .methods = methods,
          .describe = describe_output};
}

}  // namespace millrace
