// Layers of settings, the recipe that they print, and the settings that determine results.
#include "run/settings.hpp"
#include "base/json.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "run/config.hpp"
#include "run/resolve.hpp"
#include "run/run_options.hpp"
#include "stages/detect.hpp"
#include "stages/registry.hpp"

namespace millrace {
namespace {

nlohmann::json results_of(const Settings& settings) { return *parse_config(settings).results; }

/// A recipe in a temporary file.
class Recipe {
 public:
  explicit Recipe(const std::string& text)
      : path_(std::filesystem::temp_directory_path() / ("millrace_recipe_" + std::to_string(getpid()) + ".yaml")) {
    std::ofstream(path_) << text;
  }
  Recipe(const Recipe&) = delete;
  Recipe& operator=(const Recipe&) = delete;
  ~Recipe() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

std::string failure(const std::string& recipe) {
  const Recipe file(recipe);
  try {
    Settings settings;
    settings.read_recipe(file.path());
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

Detect::Options detect_options(const Settings& settings) {
  return parse_options<Detect::Options>(Detect::name, settings.values(Detect::name));
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("the recipe that lists the full pipeline has the stages of a run without a recipe") {
  Settings settings;
  CHECK(settings.stages() == default_stages());
  settings.read_recipe(std::string(MILLRACE_SOURCE_DIR) + "/configs/detect_segment.yaml");
  CHECK(settings.stages() == default_stages());
}

TEST_CASE("every recipe in configs/ can be read, and its limits fit together") {
  int recipes = 0;
  for (const auto& file : std::filesystem::directory_iterator(std::string(MILLRACE_SOURCE_DIR) + "/configs")) {
    CAPTURE(file.path().string());
    Settings settings;
    settings.read_recipe(file.path().string());
    CHECK(resolve(parse_config(settings), 8, std::nullopt).graph.lanes > 0);
    ++recipes;
  }
  CHECK(recipes >= 8);
}

TEST_CASE("the command line overrides the recipe, the recipe the defaults") {
  const Recipe file("detect:\n  conf: 0.4\n  iou: 0.6\ngate: {frames: 40}\n");
  Settings settings;
  CHECK(detect_options(settings).conf == doctest::Approx(0.25));
  settings.read_recipe(file.path());
  settings.set("detect.conf=0.7");
  const auto detect = detect_options(settings);
  CHECK(detect.conf == doctest::Approx(0.7));
  CHECK(detect.iou == doctest::Approx(0.6));
  CHECK(detect.max_detections == 100);
  CHECK(settings.parse<GateOptions>().frames == 40);
}

TEST_CASE("lists are split at commas on the command line and are lists in recipes") {
  Settings settings;
  settings.set("detect.classes=person,bus");
  CHECK(detect_options(settings).classes == std::vector<std::string>{"person", "bus"});
  settings.set("detect.classes= person , traffic light,");
  CHECK(detect_options(settings).classes == std::vector<std::string>{"person", "traffic light"});
  const Recipe file("detect: {classes: [car]}\ninput: {paths: one}\n");
  settings.read_recipe(file.path());
  CHECK(detect_options(settings).classes == std::vector<std::string>{"car"});
  CHECK(settings.parse<InputOptions>().paths == std::vector<std::string>{"one"});
}

/// The message for a recipe and an assignment. Empty if both are valid.
std::string complaint(const std::string& recipe, const std::string& assignment) {
  Settings settings;
  const Recipe file(recipe);
  settings.read_recipe(file.path());
  if (!assignment.empty()) settings.set(assignment);
  try {
    (void)parse_config(settings);
  } catch (const UsageError& error) {
    return error.what();
  }
  return {};
}

TEST_CASE("messages about wrong values and options without effect name their place") {
  CHECK(complaint("", "") == "");
  CHECK(has(complaint("detect:\n  iou: 0.5\n  conf: high\n", ""), ":3: detect.conf is 'high'"));
  CHECK(has(complaint("", "input.limit=-1"), "input.limit is -1; it must be between 0 and 2000000000"));
  CHECK(has(complaint("", "detect.conf=7"), "command line: detect.conf is 7"));
  CHECK(has(complaint("stages: [decode, encode]\n", "detect.conf=7"), "command line: detect.conf is 7"));
  CHECK(has(complaint("stages: [decode, encode]\ndetect:\n  conf: 0.3\n", ""), ":3: detect.conf has no effect"));
  CHECK(complaint("stages: [decode, encode]\n", "decode.max_scans=9") == "");
}

TEST_CASE("messages about errors of a recipe have the line and the nearest name") {
  CHECK(has(failure("\ndetct: {conf: 1}\n"), ":2: there is no stage or group 'detct'; did you mean 'detect'?"));
  CHECK(has(failure("detect:\n  iou: 1\n  cnf: 1\n"), ":3: detect has no option 'cnf'; did you mean 'conf'?"));
  CHECK(has(failure("views:\n  - {name: a, mtch: b}\n"), ":2: a view has no 'mtch'; did you mean 'match'?"));
  CHECK(has(failure("views: [{match: b}]\n"), "a view needs a name"));
  CHECK(has(failure("views: []\n"), "views must be a list"));
  CHECK(has(failure("stages: [decode, detct]\n"), "did you mean 'detect'?"));
  CHECK(has(failure("stages: {a: b}\n"), "stages must be a value or a list"));
  CHECK(has(failure("detect: {classes: [[a]]}\n"), "plain values"));
  CHECK(has(failure("- a\n"), "a recipe must be a map"));
  CHECK(has(failure("a: b: c\n"), ":1: not valid YAML"));
  CHECK(failure("").empty());
}

TEST_CASE("a wrong value of a stage with a name of its own is reported with that name and its place") {
  CHECK(has(
      complaint("stages:\n  - decode\n  - preprocess\n  - {name: places, stage: categorize, top: 0}\n  - encode\n", ""),
      ":4: places.top is 0; it must be between 1 and 1000"));
  CHECK(has(complaint("stages:\n  - decode\n  - preprocess\n  - {name: places, stage: categorize}\n  - encode\n"
                      "views:\n  - {name: a, match: a*, places: {top: 0}}\n",
                      ""),
            ":6: view 'a': places.top is 0"));
}

TEST_CASE("a key that is in a recipe twice is refused") {
  CHECK(has(failure("detect: {conf: 0.1}\ndetect: {iou: 0.5}\n"), ":2: 'detect' appears twice; remove one"));
  CHECK(has(failure("detect:\n  conf: 0.1\n  conf: 0.2\n"), ":3: 'conf' appears twice"));
  CHECK(has(failure("views:\n  - {name: a, name: b}\n"), ":2: 'name' appears twice"));
}

TEST_CASE("an option that a recipe sets in two places is refused") {
  const std::string old_name = failure("detect: {model: a.pkg}\nmodels: {detector: b.pkg}\n");
  CHECK(has(old_name, ":2: this option is set already at "));
  CHECK(has(old_name, ":1; remove one"));
  CHECK(has(failure("stages: [{name: detect, stage: detect, conf: 0.1}, encode]\ndetect: {conf: 0.2}\n"),
            ":2: this option is set already at "));
  CHECK(has(failure("stages: [decode, preprocess, detect, encode]\n"
                    "views:\n  - {name: a, match: a*, detector: a.pkg, detect: {model: b.pkg}}\n"),
            ":3: this view sets detect.model twice; remove one"));
}

TEST_CASE("the message about a missing recipe names the searched folder and the program's own recipes") {
  Settings settings;
  CHECK_THROWS_AS(settings.read_recipe("no/such/recipe.yaml"), UsageError);
  std::string text;
  try {
    settings.read_recipe("detect.yaml");
  } catch (const UsageError& error) {
    text = error.what();
  }
  CHECK(has(text, "'detect.yaml' cannot be read: no such file; relative paths start from " +
                      std::filesystem::current_path().string()));
  CHECK(has(text, "/configs ("));
}

TEST_CASE("--set must name a group, an option and a value") {
  Settings settings;
  for (const char* wrong : {"conf", "conf=1", "detect.cnf=1", "detct.conf=1", "=", ".=", "detect.=1"}) {
    CHECK_THROWS_AS(settings.set(wrong), UsageError);
  }
}

TEST_CASE("the printed settings are a recipe that gives the same settings") {
  Settings settings;
  settings.set("detect.conf=0.125");
  settings.set("detect.classes=traffic light,bus");
  settings.set("input.paths", {"a \"quoted\" name", "colon: hash #", "new\nline"});
  settings.set("models.detector=- dash");
  const std::string printed = settings.print();
  CHECK(has(printed, "  conf: 0.125"));
  CHECK(has(printed, "# command line"));
  CHECK(has(printed, "# default"));

  const Recipe file(printed);
  Settings again;
  again.read_recipe(file.path());
  CHECK(again.parse<InputOptions>().paths == settings.parse<InputOptions>().paths);
  CHECK(again.text("detect.model") == "- dash");
  CHECK(detect_options(again).classes == detect_options(settings).classes);
  CHECK(results_of(again) == results_of(settings));
}

TEST_CASE("results() has exactly the settings that determine results") {
  const auto of = [](const std::string& assignment) {
    Settings settings;
    settings.set(assignment);
    return results_of(settings);
  };
  const auto plain = results_of({});
  for (const char* run_only : {"threads.workers=3", "threads.lanes=3", "read.threads=9", "read.ahead=3",
                               "gate.frames=99", "gate.memory=3G", "models.budget=1G", "output.folder=x"}) {
    CAPTURE(run_only);
    CHECK(of(run_only) == plain);
  }
  for (const char* determining : {"detect.conf=0.5", "segment.box_batch=8", "batch.size=4", "gate.slab=1M",
                                  "decode.max_scans=9", "encode.format=coco"}) {
    CAPTURE(determining);
    CHECK(of(determining) != plain);
  }
  const Recipe file("stages: [decode, encode]\n");
  Settings settings;
  settings.read_recipe(file.path());
  CHECK_FALSE(results_of(settings)["options"].contains("detect"));
}

}  // namespace
}  // namespace millrace
