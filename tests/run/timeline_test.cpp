#include "run/timeline.hpp"
#include "base/json.hpp"

#include <doctest/doctest.h>

#include <array>

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr std::int64_t second = 1'000'000'000;

TimelineFacts facts() { return {2, {"detect", "segment"}, {"front", "back"}, 5 * second, 6 * second, 9 * second}; }

LaneTimeline::Kept kept(std::int64_t batches, std::size_t part = 100) {
  LaneTimeline timeline(2, part);
  for (std::int64_t i = 0; i < batches; ++i) {
    const std::int64_t begun = 6 * second + i * second / 4;
    timeline.add({i, static_cast<int>(i % 2), static_cast<int>(i % 2), 16},
                 std::array<std::int64_t, 3>{begun, begun + 1'234'567, begun + 11'234'567});
  }
  return timeline.read();
}

TEST_CASE("timeline.json has seconds since the start, and milliseconds of each stage") {
  const Json json = Json::parse(to_json(kept(3), facts()));
  CHECK(json == Json::parse(R"({"version": 1, "lanes": 2, "stages": ["detect", "segment"], "views": ["front", "back"],
                                "begun_s": 1, "ended_s": 4, "cut": null, "batches": [
                                [0, 0, 16, 0, 1, 1.235, 10], [1, 1, 16, 1, 1.25, 1.235, 10],
                                [0, 2, 16, 0, 1.5, 1.235, 10]]})"));
}

TEST_CASE("what is written can be read") {
  const std::string text = to_json(kept(9, 2), facts());
  Json expected = Json::parse(text);
  CHECK(expected.at("cut") == Json{{"from_s", 1.5}, {"to_s", 2.511235}, {"batches", 5}});
  expected.erase("version");
  CHECK(timeline_from_json(text) == expected);
}

TEST_CASE("a timeline of the largest size is small") {
  CHECK(to_json(kept(10'000, LaneTimeline::most), facts()).size() < 150'000);
}

TEST_CASE("damaged files and those of other versions are no timeline") {
  const Json good = Json::parse(to_json(kept(9, 2), facts()));
  REQUIRE(timeline_from_json(good.dump()).is_object());
  for (const char* text : {"", "null", "[]", "{}", "3", "\xff", "{\"version\": 1"}) {
    CAPTURE(text);
    CHECK(timeline_from_json(text).is_null());
  }
  CHECK(timeline_from_json(std::string(1'000'000, '[')).is_null());
  for (const char* change : {R"({"version": 2})",
                             R"({"lanes": 0})",
                             R"({"lanes": 1})",
                             R"({"lanes": "2"})",
                             R"({"lanes": 2.5})",
                             R"({"batches": [[0.5, 0, 16, 0, 1, 1, 1]]})",
                             R"({"stages": []})",
                             R"({"stages": ["a"]})",
                             R"({"stages": [1, 2]})",
                             R"({"views": ["front"]})",
                             R"({"begun_s": null})",
                             R"({"ended_s": 0.5})",
                             R"({"cut": {"from_s": 2}})",
                             R"({"cut": {"from_s": 2, "to_s": 1, "batches": 1}})",
                             R"({"batches": []})",
                             R"({"batches": [[0, 0, 16, 0, 1, 1]]})",
                             R"({"batches": [[-1, 0, 16, 0, 1, 1, 1]]})",
                             R"({"batches": [[0, 0, 16, 0, 1, -1, 1]]})",
                             R"({"batches": [[0, 0, 16, 0, 1, 1, "x"]]})",
                             R"({"batches": [{"a": 1}]})"}) {
    CAPTURE(change);
    Json changed = good;
    changed.update(Json::parse(change));
    CHECK(timeline_from_json(changed.dump()).is_null());
  }
  Json more = good;
  more["later"] = {{"key", "<script>"}};
  CHECK(timeline_from_json(more.dump()) == timeline_from_json(good.dump()));
}

}  // namespace
}  // namespace millrace
