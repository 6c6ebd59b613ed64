#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>

#include "models/package.hpp"
#include "models/task.hpp"
#include "models/yaml_section.hpp"

namespace millrace {

struct EmbedTask;

namespace {

void read(YamlSection& root, YamlSection& /*output*/, Package& package) {
  root.refuse("max_boxes", "has no meaning for an embedder; remove it");
  if (root.has("classes")) package.classes = root.texts("classes");
  if (!root.has("matrix")) return;
  YamlSection matrix = root.section("matrix");
  package.matrix = ClassMatrix{matrix.text("file"), matrix.choice<bool>("bias", {{"no", false}, {"yes", true}})};
  matrix.close();
  if (package.classes.empty()) root.fail("matrix", "needs the key classes, with one name for each row; add it");
}

std::vector<float> read_numbers(const std::filesystem::path& path, std::int64_t bytes) {
  std::vector<float> numbers(static_cast<std::size_t>(bytes) / sizeof(float));
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(numbers.data()), bytes))
    throw PackageError(fmt::format("{}: cannot be read", path.string()));
  // Checked once, with the package. Otherwise every picture would fail for this reason.
  const auto bad = std::ranges::find_if_not(numbers, [](float number) { return std::isfinite(number); });
  if (bad != numbers.end())
    throw PackageError(fmt::format("{}: number {} is {}, which is not finite; export the package again", path.string(),
                                   bad - numbers.begin(), *bad));
  return numbers;
}

// Reads the matrix: one row per class, then the bias if there is one.
void read_files(Package& package) {
  if (!package.matrix) return;
  const auto classes = static_cast<std::int64_t>(package.classes.size());
  const std::int64_t expected = 4 * classes * (package.number("dimensions") + (package.matrix->bias ? 1 : 0));
  for (const PackageFile& file : package.files) {
    if (file.name != package.matrix->file) continue;
    // Before it is read, because read_numbers() allocates as many bytes as the file has.
    if (file.bytes == expected) {
      package.matrix->numbers =
          std::make_shared<const std::vector<float>>(read_numbers(package.folder / file.name, file.bytes));
      return;
    }
    throw PackageError(
        fmt::format("{}: has {} bytes, but {} classes of {} dimensions{} in float32 need {}; export the "
                    "package again",
                    (package.folder / file.name).string(), file.bytes, classes, package.number("dimensions"),
                    package.matrix->bias ? " and a bias" : "", expected));
  }
  throw PackageError(fmt::format("{}: matrix.file is '{}', but the key files does not list it; add it with its sha256",
                                 (package.folder / "model.yaml").string(), package.matrix->file));
}

std::vector<Method> methods(const Package& package) {
  return {{.name = "embed",
           .part = "embedder",
           .row = RowKind::crop,
           .maximum = package.max_batch,
           .inputs = {picture_inputs()},
           .outputs = {{"embedding", {'B', package.number("dimensions")}}}}};
}

std::string describe_output(const Package& package) {
  std::string text = fmt::format("vectors of {} dimensions", package.number("dimensions"));
  if (package.number("normalised") != 0) text += ", divided by their length";
  if (package.matrix) text += fmt::format(", a matrix of {} classes", package.classes.size());
  return text;
}

}  // namespace

/// An embedder: a vector for each picture or crop.
/// With a matrix of classes it is also a classifier: matrix x vector + bias gives the logits of the classes.
template <>
Task make_task<EmbedTask>() {
  return {.name = "embed",
          .model = "embedder",
          .method_names = {"embed"},
          .output = {{.name = "dimensions", .highest = 65536}, {.name = "normalised", .words = {"no", "yes"}}},
          .native_precision = Precision::fp16,
          .older_precision = Precision::fp16,
          .read = read,
          .methods = methods,
          .describe = describe_output,
          .read_files = read_files};
}

}  // namespace millrace
