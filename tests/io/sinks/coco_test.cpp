#include "io/sinks/coco.hpp"
#include "base/json.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "io/results/json_line.hpp"
#include "io/results/output_contents.hpp"
#include "io/results/rle.hpp"
#include "io/results/segments.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/io/sinks/coco_output.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

TEST_CASE("a COCO file has the content of the segments") {
  const TemporaryFolder out, to;
  const auto frames = write_sample_output(out.path(), 40);
  const std::string file = to.path() + "/coco.json";
  const CocoExport result = export_coco(out.path(), file);
  CHECK(result.files == std::vector<std::string>{file});
  CHECK(names_in(to.path()) == std::vector<std::string>{"coco.json"});

  const Json json = Json::parse(content_of(file));
  std::map<std::int64_t, std::string> categories;
  for (const auto& category : json["categories"]) categories[category["id"]] = category["name"];
  std::map<std::int64_t, std::vector<Json>> annotations;
  std::set<std::int64_t> ids;
  for (const auto& annotation : json["annotations"]) {
    annotations[annotation["image_id"]].push_back(annotation);
    CHECK(ids.insert(annotation["id"].get<std::int64_t>()).second);
  }
  CHECK(static_cast<std::int64_t>(ids.size()) == result.annotations);
  CHECK(*ids.begin() == 1);
  std::map<std::int64_t, Json> images;
  for (const auto& image : json["images"]) images[image["id"]] = image;

  std::int64_t failed = 0;
  for (const auto& frame : frames) {
    if (frame.failed) {
      ++failed;
      CHECK_FALSE(images.contains(frame.id));
      continue;
    }
    REQUIRE(images.contains(frame.id));
    CHECK(images[frame.id]["width"] == frame.width);
    CHECK(images[frame.id]["view"] == frame.view);
    CHECK(images[frame.id].contains("path_b64") == !is_utf8(frame.path));
    if (is_utf8(frame.path)) CHECK(images[frame.id]["file_name"] == frame.path);
    REQUIRE(annotations[frame.id].size() == frame.objects.size());
    for (std::size_t i = 0; i < frame.objects.size(); ++i) {
      const Object& object = frame.objects[i];
      const Json& annotation = annotations[frame.id][i];
      CHECK(categories[annotation["category_id"]] ==
            (object.name.empty() ? "class " + std::to_string(object.class_id) : object.name));
      CHECK(annotation["bbox"][2].get<double>() == doctest::Approx(object.width).epsilon(0.01));
      CHECK(annotation["score"].get<double>() == doctest::Approx(object.score).epsilon(0.001));
      CHECK(annotation["iscrowd"] == 0);
      if (object.rle_counts.empty()) {
        CHECK(annotation["segmentation"].empty());
        CHECK(annotation["area"].get<double>() == doctest::Approx(object.width * object.height).epsilon(0.02));
      } else {
        CHECK(annotation["segmentation"]["size"] == Json{frame.height, frame.width});
        CHECK(annotation["segmentation"]["counts"] == rle_to_string(object.rle_counts));
        CHECK(annotation["area"] == object.area);
      }
    }
  }
  CHECK(failed > 0);
  CHECK(json["info"]["failed_pictures_left_out"] == failed);
  CHECK(result.failed == failed);
  CHECK(result.images == static_cast<std::int64_t>(images.size()));
}

TEST_CASE("categories of several models are merged by name") {
  const TemporaryFolder out;
  write_sample_output(out.path(), 40);
  const std::string file = out.path() + "/coco.json";
  export_coco(out.path(), file);
  std::map<std::string, int> ids;
  const Json json = Json::parse(content_of(file));
  for (const auto& category : json["categories"]) {
    CHECK(ids.emplace(category["name"], category["id"]).second);
  }
  // "side" comes first with car 0, person 1 and tree 2.
  // Then "front" has person 0, car 1 and a class 2 without a name.
  CHECK(ids["car"] == 1);
  CHECK(ids["person"] == 2);
  CHECK(ids["tree"] == 3);
  CHECK(ids["class 2"] == 4);
  CHECK(ids.size() == 4);
}

TEST_CASE("an export over the limit is split between pictures, and ids continue") {
  const TemporaryFolder out, to;
  write_sample_output(out.path(), 40);
  const std::string file = to.path() + "/x.coco.json";
  const CocoExport whole = export_coco(out.path(), file);
  const Json expected = Json::parse(content_of(file));
  for (const std::int64_t limit :
       {std::int64_t{1}, std::int64_t{4}, std::int64_t{7}, whole.annotations - 1, whole.annotations}) {
    CAPTURE(limit);
    const CocoExport split = export_coco(out.path(), file, {limit});
    CHECK(split.annotations == whole.annotations);
    CHECK((split.files.size() > 1) == (limit < whole.annotations));
    Json images = Json::array(), annotations = Json::array();
    for (std::size_t i = 0; i < split.files.size(); ++i) {
      const Json part = Json::parse(content_of(split.files[i]));
      CHECK(part["categories"] == expected["categories"]);
      CHECK(part["info"]["part"] == i + 1);
      CHECK(part["info"]["parts"] == split.files.size());
      std::set<std::int64_t> here;
      for (const auto& image : part["images"]) here.insert(image["id"].get<std::int64_t>()), images.push_back(image);
      for (const auto& annotation : part["annotations"]) {
        CHECK(here.contains(annotation["image_id"].get<std::int64_t>()));
        annotations.push_back(annotation);
      }
      CHECK((static_cast<std::int64_t>(part["annotations"].size()) <= limit || here.size() == 1));
    }
    CHECK(images == expected["images"]);
    CHECK(annotations == expected["annotations"]);
    CHECK(names_in(to.path()).size() == split.files.size());  // files of the export before are removed
  }
  CHECK(names_in(to.path()) == std::vector<std::string>{"x.coco.json"});
}

TEST_CASE("an export changes only its own files, and is the same every time") {
  const TemporaryFolder out, to;
  write_sample_output(out.path(), 10);
  const std::vector<std::string> others{"coco-1.json", "coco-00001.txt", "coco-0000x.json", "cocoa.json",
                                        "coco-00001.json.bak"};
  for (const auto& name : others) std::ofstream(to.path() + "/" + name) << "mine";
  export_coco(out.path(), to.path() + "/coco.json");
  const std::string first = content_of(to.path() + "/coco.json");
  export_coco(out.path(), to.path() + "/coco.json");
  CHECK(content_of(to.path() + "/coco.json") == first);
  for (const auto& name : others) CHECK(content_of(to.path() + "/" + name) == "mine");
  CHECK(names_in(to.path()).size() == others.size() + 1);
}

TEST_CASE("a failed export leaves nothing behind, and the previous file unchanged") {
  const TemporaryFolder out, to;
  write_sample_output(out.path(), 10);
  const std::string file = to.path() + "/coco.json";
  export_coco(out.path(), file);
  const std::string before = content_of(file);
  const std::string segment = out.path() + "/segments/000000.jsonl";
  std::string lines = content_of(segment);
  lines.replace(lines.rfind("\"state\""), 7, "\"State\"");  // of the same length, but no segment line
  std::ofstream(segment, std::ios::binary) << lines;
  CHECK_THROWS_AS(export_coco(out.path(), file), std::runtime_error);
  CHECK(content_of(file) == before);
  CHECK(names_in(to.path()) == std::vector<std::string>{"coco.json"});
  CHECK_THROWS_AS(export_coco(out.path(), to.path() + "/missing/coco.json"), StorageError);
}

}  // namespace millrace
