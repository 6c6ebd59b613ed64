#include "io/results/json_line.hpp"

#include <doctest/doctest.h>

#include <clocale>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "io/results/rle.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

std::string json_string(std::string_view text) { return JsonWriter().value(text).take(); }
std::string rounded(double number, int decimals) { return JsonWriter().rounded(number, decimals).take(); }

FrameRecord sample_frame() {
  FrameRecord frame;
  frame.id = 17;
  frame.path = "front/a.jpg";
  frame.width = 4;
  frame.height = 3;
  frame.view = "front";
  Object object;
  object.x = 0.5F;
  object.y = 1.25F;
  object.width = 2;
  object.height = 1.337F;
  object.score = 0.912345F;
  object.class_id = 2;
  object.name = "car";
  object.rle_counts = {4, 2, 6};
  object.predicted_iou = 0.93F;
  object.area = 2;
  frame.objects.push_back(object);
  return frame;
}

}  // namespace

TEST_CASE("a segment line has the shape of the design") {
  FrameRecord frame = sample_frame();
  CHECK(frame_line(frame) ==
        R"({"id": 17, "path": "front/a.jpg", "width": 4, "height": 3, "view": "front", "state": "ok", "objects": [)"
        R"({"box": [0.5, 1.25, 2, 1.34], "score": 0.91234, "class": 2, "name": "car", )"
        R"("rle": {"size": [3, 4], "counts": "426"}, "iou": 0.93, "area": 2}]})");
  frame.split = true;
  frame.objects.clear();
  CHECK(frame_line(frame) == R"({"id": 17, "path": "front/a.jpg", "width": 4, "height": 3, "view": "front", )"
                             R"("state": "ok", "exec": "split", "objects": []})");
  frame.split = false;
  frame.failed = true;
  frame.reason = Reason::truncated;
  frame.detail = "the data end at row 7";
  CHECK(frame_line(frame) == R"({"id": 17, "path": "front/a.jpg", "width": 4, "height": 3, "view": "front", )"
                             R"("state": "failed", "reason": "truncated", "detail": "the data end at row 7"})");
}

TEST_CASE("lines come back as they were") {
  FrameRecord frame = sample_frame();
  frame.objects.push_back(frame.objects.front());
  frame.objects.back().rle_counts.clear();  // no mask
  frame.objects.back().name.clear();        // no class name
  const FrameRecord back = parse_frame(frame_line(frame));
  CHECK(back.id == 17);
  CHECK(back.view == "front");
  REQUIRE(back.objects.size() == 2);
  CHECK(back.objects[0].height == doctest::Approx(1.34));
  CHECK(back.objects[0].rle_counts == frame.objects[0].rle_counts);
  CHECK(back.objects[0].predicted_iou == doctest::Approx(0.93));
  CHECK(back.objects[1].rle_counts.empty());
  CHECK(back.objects[1].name.empty());
  CHECK(frame_line(back) == frame_line(parse_frame(frame_line(back))));

  frame.failed = true;
  frame.reason = Reason::too_large;
  frame.detail = "\"\n\x01";
  const FrameRecord failed = parse_frame(frame_line(frame));
  CHECK(failed.failed);
  CHECK(failed.reason == Reason::too_large);
  CHECK(failed.detail == frame.detail);
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
    FrameRecord frame = sample_frame();
    frame.path = path;
    const std::string line = frame_line(frame);
    CHECK(is_utf8(line));
    CHECK(line.find('\n') == std::string::npos);
    const Json json = Json::parse(line);
    CHECK(json.contains("path_b64") == !is_utf8(path));
    CHECK(parse_frame(line).path == path);
    // What nlohmann writes for bytes that are no UTF-8 is an independent reading of the same recommendation.
    const std::string expected = Json::parse(Json(path).dump(-1, ' ', false, Json::error_handler_t::replace));
    CHECK(json["path"] == expected);
  }
}

TEST_CASE("every byte and every code point is escaped as JSON wants") {
  for (int byte = 0; byte < 128; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    CHECK(Json::parse(json_string(text)).get<std::string>() == text);
  }
  CHECK(json_string("a\"\\/\b\f\n\r\t\x1f\x7f") == "\"a\\\"\\\\/\\b\\f\\n\\r\\t\\u001f\x7f\"");
  for (unsigned code = 0x80; code < 0x110000; code += code < 0x3000 ? 1 : 97) {
    std::string text;
    const auto add = [&](unsigned byte) { text.push_back(static_cast<char>(byte)); };
    if (code < 0x800) add(0xC0 | code >> 6);
    if (code >= 0x800 && code < 0x10000) add(0xE0 | code >> 12);
    if (code >= 0x10000) add(0xF0 | code >> 18), add(0x80 | (code >> 12 & 63));
    if (code >= 0x800) add(0x80 | (code >> 6 & 63));
    add(0x80 | (code & 63));
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    CHECK(is_utf8(text) == !surrogate);
    if (!surrogate) CHECK(json_string(text) == "\"" + text + "\"");
  }
  CHECK_FALSE(is_utf8("\xC0\x80"));
  CHECK_FALSE(is_utf8("\xF4\x90\x80\x80"));
}

TEST_CASE("numbers are the shortest text, rounded, the same in every locale") {
  struct Row {
    double number;
    int decimals;
    const char* text;
  };
  for (const auto& [number, decimals, text] : std::initializer_list<Row>{{0, 2, "0"},
                                                                         {-0.0, 2, "0"},
                                                                         {-0.001, 2, "0"},
                                                                         {0.005, 2, "0.01"},
                                                                         {-0.005, 2, "-0.01"},
                                                                         {0.5, 0, "1"},
                                                                         {1.10, 2, "1.1"},
                                                                         {1.01, 2, "1.01"},
                                                                         {-12.349, 2, "-12.35"},
                                                                         {-0.5, 1, "-0.5"},
                                                                         {100, 2, "100"},
                                                                         {0.99999949, 5, "1"},
                                                                         {0.00001, 5, "0.00001"},
                                                                         {123456.789, 9, "123456.789"},
                                                                         {1e15, 2, "1e+15"},
                                                                         {double{0.91F}, 5, "0.91"}}) {
    CHECK(rounded(number, decimals) == text);
  }
  CHECK(JsonWriter().value(0.1F).take() == "0.1");
  CHECK(JsonWriter().value(0.1).take() == "0.1");
  CHECK(JsonWriter().value(std::numeric_limits<std::int64_t>::min()).take() == "-9223372036854775808");
  std::mt19937_64 random(3);
  for (int i = 0; i < 2000; ++i) {
    const double number = std::uniform_real_distribution<>(-1e5, 1e5)(random);
    const std::string text = rounded(number, 2);
    CHECK(std::abs(std::stod(text) - number) <= 0.005 + 1e-9);
    CHECK(Json::parse(text).is_number());
  }
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8"}) {
    if (std::setlocale(LC_ALL, name) == nullptr) continue;
    CHECK(rounded(1.5, 2) == "1.5");
    CHECK(JsonWriter().value(1.5).take() == "1.5");
    std::setlocale(LC_ALL, "C");
  }
}

TEST_CASE("what JSON cannot hold is refused") {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    CHECK_THROWS_AS(JsonWriter().value(bad), std::domain_error);
    CHECK_THROWS_AS(JsonWriter().value(double{bad}), std::domain_error);
    CHECK_THROWS_AS(JsonWriter().rounded(bad, 2), std::domain_error);
    FrameRecord frame = sample_frame();
    frame.objects[0].score = bad;
    CHECK_THROWS_WITH_AS(frame_line(frame), doctest::Contains("\"score\": "), std::domain_error);
  }
  FrameRecord frame = sample_frame();
  frame.objects[0].rle_counts = {4, 2, 5};
  CHECK_THROWS_AS(frame_line(frame), std::invalid_argument);
}

TEST_CASE("a writer says when brackets do not match") {
  JsonWriter open;
  open.begin_object();
  CHECK_THROWS_AS(open.take(), std::logic_error);
  CHECK_THROWS_AS(JsonWriter().end_array(), std::logic_error);
  JsonWriter nested;
  nested.begin_object().key("a").begin_array().value(1).value(true).null().begin_object().end_object().end_array();
  nested.key("b").begin_object().key("c").value("d").end_object().end_object();
  CHECK(nested.take() == R"({"a": [1, true, null, {}], "b": {"c": "d"}})");
  CHECK(nested.take().empty());
}

TEST_CASE("a line that is not one is refused with its beginning") {
  const std::string good = frame_line(sample_frame());
  for (std::size_t length = 0; length < good.size(); ++length)
    CHECK_THROWS_AS(parse_frame(good.substr(0, length)), std::runtime_error);
  for (
      const char* bad :
      {"[]", "{}", "17", R"({"id": "x"})",
       R"({"id": 1, "path": "a", "width": 2, "height": 2, "view": "v", "state": "maybe", "objects": []})",
       R"({"id": 1, "path": "a", "width": 2, "height": 2, "view": "v", "state": "failed", "reason": "bored", "detail": ""})",
       R"({"id": 1, "path": "a", "path_b64": "!", "width": 2, "height": 2, "view": "v", "state": "ok", "objects": []})",
       R"({"id": 1, "path": "a", "width": 2, "height": 2, "view": "v", "state": "ok", "objects": [)"
       R"({"box": [1, 2, 3], "score": 1, "class": 0}]})",
       R"({"id": 1, "path": "a", "width": 2, "height": 2, "view": "v", "state": "ok", "objects": [{"box": [1, 2, 3, 4], )"
       R"("score": 1, "class": 0, "rle": {"size": [3, 3], "counts": "9"}, "iou": 1, "area": 0}]})"}) {
    CHECK_THROWS_WITH_AS(parse_frame(bad), doctest::Contains(bad[0] == '{' ? "the line begins {" : "the line begins"),
                         std::runtime_error);
  }
  CHECK(parse_frame(
            R"({"id": 1, "path": "a", "width": 2, "height": 2, "view": "v", "state": "ok", "mean_color": [1, 2, 3]})")
            .objects.empty());
}

}  // namespace millrace
