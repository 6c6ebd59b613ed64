// When the built-in models step in, and which pictures they know.
#include "apps/builtin.hpp"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "apps/run_options.hpp"

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

TEST_CASE("without any model the built-in ones and their views are named") {
  Settings settings;
  REQUIRE(use_builtin_models(settings, "/models"));
  const auto models = settings.parse<ModelOptions>();
  CHECK(models.detector == "/models/front.pkg");
  CHECK(models.segmenter == "/models/segmenter.pkg");
  REQUIRE(settings.views().size() == 4);
  CHECK(settings.views()[1].name == "left");
  CHECK(settings.views()[1].pattern == "left/**");
  CHECK(settings.views()[1].detector == "/models/left.pkg");
  CHECK(settings.views()[3].name == "default");
  CHECK(settings.views()[3].pattern == "**");
  CHECK(settings.print().find("# built-in models") != std::string::npos);
}

TEST_CASE(
    "one model that is named keeps the built-in ones away, so that no mask comes from a model that was not meant") {
  for (const char* named : {"models.detector=a.pkg", "models.segmenter=a.pkg"}) {
    CAPTURE(named);
    Settings settings;
    settings.set(named);
    CHECK_FALSE(use_builtin_models(settings, "/models"));
    CHECK(settings.views().size() == 1);
  }
  Settings settings;
  settings.set_views({{"a", "a/**", "a.pkg"}, {"b", "b/**", ""}}, "test");
  CHECK_FALSE(use_builtin_models(settings, "/models"));
  CHECK(settings.parse<ModelOptions>().segmenter.empty());
}

TEST_CASE("views of a recipe that name no model are kept") {
  Settings settings;
  settings.set_views({{"a", "a/**", ""}, {"b", "b/**", ""}}, "test");
  REQUIRE(use_builtin_models(settings, "/models"));
  REQUIRE(settings.views().size() == 2);
  CHECK(settings.views()[1].name == "b");
  CHECK(settings.parse<ModelOptions>().detector == "/models/front.pkg");
}

TEST_CASE("where the program finds none, nothing is named") {
  Settings settings;
  CHECK_FALSE(use_builtin_models(settings, ""));
  CHECK(settings.parse<ModelOptions>().detector.empty());
}

TEST_CASE("drawn scenes are known by the truth beside them") {
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
}

}  // namespace
}  // namespace millrace
