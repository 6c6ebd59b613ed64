#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/json.hpp"
#include "io/reducers/reducer.hpp"
#include "tests/io/reducers/reduced_lines.hpp"

namespace millrace {
namespace {

using nlohmann::json;

json reduced(const std::vector<json>& lines, std::vector<std::string>* summary = nullptr) {
  const auto output = reduce_lines("categories", lines);
  if (summary != nullptr) *summary = output.summary;
  return json::parse(output.content);
}

json picture(const std::string& view, const json& more = {}) {
  json line{{"view", view}, {"state", "ok"}};
  line.update(more);
  return line;
}

json top(const std::vector<std::pair<int, std::string>>& classes) {
  json list = json::array();
  for (const auto& [number, name] : classes) list.push_back({number, name, 0.25});
  return {{"top", list}};
}

TEST_CASE("pictures are counted by best class, view and stage, and as none without a class") {
  std::vector<std::string> summary;
  const json counts = reduced({picture("front", {{"scenes", top({{3, "bus"}, {1, "car"}})}, {"kinds", top({})}}),
                               picture("front", {{"scenes", top({{1, "car"}, {3, "bus"}})}}),
                               picture("front", {{"scenes", top({{1, "car"}})}}),
                               picture("left", {{"scenes", top({})}}),
                               picture("left", {{"scenes", top({{7, ""}})}}),
                               {{"view", "left"}, {"state", "failed"}, {"reason", "truncated"}}},
                              &summary);
  CHECK(counts["pictures"] == json{{"front", 3}, {"left", 2}});
  CHECK(counts["failed"] == json{{"left", 1}});
  CHECK(counts["categories"]["scenes"] ==
        json{{"front", {{"bus", 1}, {"car", 2}}}, {"left", {{"none", 1}, {"class 7", 1}}}});
  CHECK(counts["categories"]["kinds"] == json{{"front", {{"none", 1}}}});
  CHECK(summary == std::vector<std::string>{"kinds, view front: 1 none", "scenes, view front: 2 car, 1 bus",
                                            "scenes, view left: 1 class 7, 1 none"});
}

TEST_CASE("objects by class and view") {
  const json car{{"class", 2}, {"name", "car"}}, nameless{{"class", 5}};
  std::vector<std::string> summary;
  const json counts = reduced({picture("front", {{"objects", {car, car, nameless}}}),
                               picture("left", {{"objects", {car}}}), picture("left", {{"objects", json::array()}})},
                              &summary);
  CHECK(counts["objects"] == json{{"front", {{"car", 2}, {"class 5", 1}}}, {"left", {{"car", 1}}}});
  CHECK(counts["categories"] == json::object());
  CHECK(summary == std::vector<std::string>{"objects, view front: 2 car, 1 class 5", "objects, view left: 1 car"});
}

TEST_CASE("a value of another form is not a category") {
  for (const json& other : {json("top"), json{{"top", 3}}, json{{"top", {{1, "a"}}}}, json{{"top", {{"a", 1, 0.5}}}},
                            json{{"bottom", json::array()}}, json{{"top", {1, 2, 3}}}}) {
    CAPTURE(other.dump());
    CHECK(reduced({picture("front", {{"scenes", other}})})["categories"] == json::object());
  }
}

TEST_CASE("a long list of classes is shortened in the sentence, not in the file") {
  std::vector<json> lines;
  for (int i = 0; i < 7; ++i) lines.push_back(picture("a", {{"x", top({{i, "n" + std::to_string(i)}})}}));
  lines.push_back(lines.back());
  std::vector<std::string> summary;
  CHECK(reduced(lines, &summary)["categories"]["x"]["a"].size() == 7);
  CHECK(summary == std::vector<std::string>{"x, view a: 2 n6, 1 n0, 1 n1, 1 n2, 1 n3 and 2 other names"});
}

}  // namespace
}  // namespace millrace
