// When a run uses the built-in models, and which pictures they know.
#include "run/builtin.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "run/run_options.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "millrace-builtin-XXXXXX").string();
    path = mkdtemp(name.data());
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() { fs::remove_all(path); }
  fs::path path;
};

std::string detector_of(const Settings& settings, std::size_t view) {
  const auto& options = settings.views()[view].options;
  return options.count("detect") == 0 ? "" : options.at("detect").at("model").front();
}

TEST_CASE("without any model the built-in ones and their views are named") {
  Settings settings;
  REQUIRE(use_builtin_models(settings, "/models"));
  CHECK(settings.text("detect.model") == "/models/front.pkg");
  CHECK(settings.text("segment.model") == "/models/segmenter.pkg");
  REQUIRE(settings.views().size() == 4);
  CHECK(settings.views()[1].name == "left");
  CHECK(settings.views()[1].pattern == "**/left/**");
  CHECK(detector_of(settings, 1) == "/models/left.pkg");
  CHECK(settings.views()[3].name == "default");
  CHECK(settings.views()[3].pattern == "**");
  CHECK(settings.print().find("# built-in models") != std::string::npos);
}

TEST_CASE(
    "if the user names one model, no built-in one is used, so that no mask comes from a model that was not meant") {
  for (const char* named : {"models.detector=a.pkg", "models.segmenter=a.pkg"}) {
    CAPTURE(named);
    Settings settings;
    settings.set(named);
    CHECK_FALSE(use_builtin_models(settings, "/models"));
    CHECK(settings.views().size() == 1);
  }
  Settings settings;
  settings.set_views({{"a", "a/**", {{"detect", {{"model", {"a.pkg"}}}}}}, {"b", "b/**", {}}}, "test");
  CHECK_FALSE(use_builtin_models(settings, "/models"));
  CHECK(settings.text("segment.model").empty());
  settings.set_views({{"a", "a/**", {{"segment", {{"model", {"a.pkg"}}}}}}, {"b", "b/**", {}}}, "test");
  CHECK_FALSE(use_builtin_models(settings, "/models"));
  CHECK(settings.text("detect.model").empty());
}

TEST_CASE("options of a view hold with built-in models too") {
  for (const char* input : {"pictures/", "build/demo/pictures/left/"}) {
    CAPTURE(input);
    Settings settings;
    settings.set("input.paths", {input}, "test");
    settings.set_views({{"cam", "", {{"detect", {{"iou", {"0.3"}}}}, {"encode", {{"format", {"overlay"}}}}}}}, "test");
    REQUIRE(use_builtin_models(settings, "/models"));
    for (const View& view : settings.views()) {
      CAPTURE(view.name);
      CHECK(view.options.at("detect").at("iou") == std::vector<std::string>{"0.3"});
      CHECK(view.options.at("detect").count("model") == (view.name == "cam" ? 0 : 1));
      CHECK(view.options.at("encode").at("format") == std::vector<std::string>{"overlay"});
    }
  }
}

TEST_CASE("views of a recipe that name no model are kept") {
  Settings settings;
  settings.set_views({{"a", "a/**", {}}, {"b", "b/**", {}}}, "test");
  REQUIRE(use_builtin_models(settings, "/models"));
  REQUIRE(settings.views().size() == 2);
  CHECK(settings.views()[1].name == "b");
  CHECK(settings.text("detect.model") == "/models/front.pkg");
}

TEST_CASE("if the program finds no built-in models, it names none") {
  Settings settings;
  CHECK_FALSE(use_builtin_models(settings, ""));
  CHECK(settings.text("detect.model").empty());
}

TEST_CASE("only models that the stages need are named") {
  const Folder folder;
  const auto with_stages = [&](const char* stages) {
    const fs::path recipe = folder.path / "recipe.yaml";
    std::ofstream(recipe) << "stages: " << stages << "\n";
    Settings settings;
    settings.read_recipe(recipe.string());
    return settings;
  };
  Settings decode = with_stages("[decode, encode]");
  CHECK_FALSE(use_builtin_models(decode, "/models"));
  CHECK(decode.views().size() == 1);
  CHECK(decode.text("detect.model").empty());

  Settings detect = with_stages("[decode, preprocess, detect, encode]");
  CHECK(use_builtin_models(detect, "/models"));
  CHECK(detect.text("detect.model") == "/models/front.pkg");
  CHECK(detect.text("segment.model").empty());
  CHECK(detect.views().size() == 4);
}

TEST_CASE("a manifest's boxes have their own classes, so no detector is named with it") {
  Settings settings;
  settings.set("input.paths=boxes.csv");
  REQUIRE(use_builtin_models(settings, "/models"));
  CHECK(settings.text("detect.model").empty());
  CHECK(settings.text("segment.model") == "/models/segmenter.pkg");
  CHECK(settings.views().size() == 1);

  const Folder folder;
  std::ofstream(folder.path / "detect.yaml") << "stages: [decode, preprocess, detect, encode]\n";
  Settings detect;
  detect.read_recipe((folder.path / "detect.yaml").string());
  detect.set("input.paths=boxes.jsonl");
  CHECK_FALSE(use_builtin_models(detect, "/models"));
}

TEST_CASE("the built-in models set detect.conf if the user does not") {
  Settings settings;
  REQUIRE(use_builtin_models(settings, "/models"));
  CHECK(settings.values("detect").at("conf") == std::vector<std::string>{"0.5"});
  CHECK(settings.origin("detect.conf") == "built-in models");

  Settings own;
  own.set("detect.conf=0.1");
  REQUIRE(use_builtin_models(own, "/models"));
  CHECK(own.values("detect").at("conf") == std::vector<std::string>{"0.1"});

  Settings real;
  real.set("models.detector=a.pkg");
  CHECK_FALSE(use_builtin_models(real, "/models"));
  CHECK(real.values("detect").count("conf") == 0);
}

TEST_CASE("a part of the drawn scenes gets the detector of its view") {
  const Folder folder;
  const fs::path drawn = folder.path / "drawn";
  for (const char* view : {"front", "left", "right"}) fs::create_directories(drawn / view);
  std::ofstream(drawn / "drawn-scenes.json") << "{}";
  const auto last_view = [&](const std::string& inputs) {
    Settings settings;
    settings.set("input.paths=" + inputs);
    REQUIRE(use_builtin_models(settings, "/models"));
    const View& last = settings.views().back();
    CHECK(settings.views().size() == (last.name == "default" ? 4 : 1));
    return last.name + " " + detector_of(settings, settings.views().size() - 1);
  };
  const std::string left = (drawn / "left").string(), right = (drawn / "right").string();
  CHECK(last_view(drawn.string()) == "default ");
  CHECK(last_view(left) == "left /models/left.pkg");
  CHECK(last_view(left + "/") == "left /models/left.pkg");
  CHECK(last_view(left + "/0000.jpg," + left + "/0001.jpg") == "left /models/left.pkg");
  CHECK(last_view(left + "," + right) == "default ");  // paths contain the views' names
  CHECK(last_view("elsewhere/left") == "default ");
}

TEST_CASE("drawn scenes are recognised by their file drawn-scenes.json") {
  const Folder folder;
  const fs::path drawn = folder.path / "drawn", other = folder.path / "other";
  fs::create_directories(drawn / "front");
  fs::create_directories(other);
  std::ofstream(drawn / "drawn-scenes.json") << "{}";
  CHECK(are_drawn_scenes({drawn.string()}));
  CHECK(are_drawn_scenes({drawn.string() + "/"}));
  CHECK(are_drawn_scenes({(drawn / "front").string(), (drawn / "front/0001.jpg").string()}));
  CHECK_FALSE(are_drawn_scenes({other.string()}));
  CHECK_FALSE(are_drawn_scenes({drawn.string(), other.string()}));
  CHECK_FALSE(are_drawn_scenes({"-"}));
  CHECK_FALSE(are_drawn_scenes({""}));
}

}  // namespace
}  // namespace millrace
