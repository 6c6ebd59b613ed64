// The lines of segments: make_segment_line() writes them, io/results reads them.
#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/json.hpp"
#include "io/results/json_line.hpp"
#include "stages/detect.hpp"
#include "stages/encode.hpp"
#include "stages/postprocess.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

const std::vector<View> views{{"front", "", {}}};

Frame sample_frame(const std::string& path = "front/a.jpg") {
  Item item;
  item.id = 17;
  item.path = path;
  Frame frame(item, PlanPosition{});
  frame.info.width = 4;
  frame.info.height = 3;
  return frame;
}

Detections one_car(float score = 0.912345F) {
  const auto names = std::make_shared<const std::vector<std::string>>(std::vector<std::string>{"cat", "", "car"});
  return {{{0.5F, 1.25F, 2.5F, 2.587F, score, 2}}, names};
}

Mask two_pixels() { return {{4, 2, 6}, 4, 3, 2, 0.93F}; }

std::string line_of(const Frame& frame) { return make_segment_line(frame, views); }

TEST_CASE("a segment line has the shape that docs/formats.md describes") {
  Frame frame = sample_frame();
  frame.columns.set(detections, one_car());
  frame.columns.set(detector, std::string("yolo"));
  frame.columns.set(masks, {two_pixels()});
  CHECK(line_of(frame) ==
        R"({"id": 17, "path": "front/a.jpg", "width": 4, "height": 3, "view": "front", "state": "ok", )"
        R"("detector": "yolo", "objects": [{"box": [0.5, 1.25, 2, 1.34], "score": 0.91234, "class": 2, "name": "car", )"
        R"("rle": {"size": [3, 4], "counts": "426"}, "iou": 0.93, "area": 2}]})");
  Frame empty = sample_frame();
  empty.split = true;
  empty.columns.set(detections, Detections{});
  CHECK(line_of(empty) == R"({"id": 17, "path": "front/a.jpg", "width": 4, "height": 3, "view": "front", )"
                          R"("state": "ok", "exec": "split", "objects": []})");
  frame.fail("decode", Reason::truncated, "the data end at row 7");
  CHECK(line_of(frame) == R"({"id": 17, "path": "front/a.jpg", "width": 4, "height": 3, "view": "front", )"
                          R"("state": "failed", "reason": "truncated", "detail": "the data end at row 7"})");
}

TEST_CASE("a line that is read back has the values that were written") {
  Frame frame = sample_frame();
  Detections found = one_car();
  found.list.push_back(found.list.front());
  found.list.back().class_id = 1;  // a class without a name
  frame.columns.set(detections, found);
  frame.columns.set(masks, {two_pixels(), two_pixels()});
  const FrameRecord back = parse_frame(line_of(frame));
  CHECK(back.id == 17);
  CHECK(back.view == "front");
  CHECK_FALSE(back.split);
  REQUIRE(back.objects.size() == 2);
  CHECK(back.objects[0].width == 2);
  CHECK(back.objects[0].height == doctest::Approx(1.34));
  CHECK(back.objects[0].score == doctest::Approx(0.91234));
  CHECK(back.objects[0].name == "car");
  CHECK(back.objects[0].rle_counts == two_pixels().counts);
  CHECK(back.objects[0].predicted_iou == doctest::Approx(0.93));
  CHECK(back.objects[0].area == 2);
  CHECK(back.objects[1].class_id == 1);
  CHECK(back.objects[1].name.empty());

  Frame without_masks = sample_frame();
  without_masks.split = true;
  without_masks.columns.set(detections, one_car());
  CHECK(parse_frame(line_of(without_masks)).split);
  CHECK(parse_frame(line_of(without_masks)).objects.at(0).rle_counts.empty());

  frame.fail("decode", Reason::too_large, "\"\n\x01");
  const FrameRecord failed = parse_frame(line_of(frame));
  CHECK(failed.failed);
  CHECK(failed.reason == Reason::too_large);
  CHECK(failed.detail == "\"\n\x01");
  CHECK(failed.objects.empty());
}

TEST_CASE("any bytes of a path survive, and the line is UTF-8 on one line") {
  std::string all;
  for (int byte = 1; byte < 256; ++byte) all += static_cast<char>(byte);
  std::vector<std::string> paths{all,
                                 "line\nbreak\t\"quoted\", %s/-x*.jpg",
                                 "caf\xC3\xA9.jpg",
                                 "cafe\xCC\x81.jpg",
                                 "\xFF\xFE.jpg",
                                 "\xED\xA0\x80.jpg",
                                 "\xF0\x9F\x98\x80.jpg",
                                 "\xF0\x9F\x98",
                                 "\\",
                                 ""};
  std::mt19937 random(7);
  for (int i = 0; i < 300; ++i) {
    std::string path(static_cast<std::size_t>(random() % 40), '\0');
    for (char& c : path) c = static_cast<char>(1 + random() % 255);
    paths.push_back(path);
  }
  for (const auto& path : paths) {
    const std::string line = line_of(sample_frame(path));
    CHECK(is_utf8(line));
    CHECK(line.find('\n') == std::string::npos);
    const Json json = Json::parse(line);
    CHECK(json.contains("path_b64") == !is_utf8(path));
    CHECK(parse_frame(line).path == path);
    // nlohmann is an independent implementation of the same recommendation for bytes that are not UTF-8.
    const std::string expected = Json::parse(Json(path).dump(-1, ' ', false, Json::error_handler_t::replace));
    CHECK(json["path"] == expected);
  }
}

TEST_CASE("a line refuses what JSON cannot hold, and a mask of another size") {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    Frame frame = sample_frame();
    frame.columns.set(detections, one_car(bad));
    CHECK_THROWS_WITH_AS(line_of(frame), doctest::Contains("\"score\": "), std::domain_error);
  }
  Frame frame = sample_frame();
  frame.columns.set(detections, one_car());
  Mask mask = two_pixels();
  mask.counts = {4, 2, 5};
  frame.columns.set(masks, {mask});
  CHECK_THROWS_AS(line_of(frame), std::invalid_argument);
}

}  // namespace
}  // namespace millrace
