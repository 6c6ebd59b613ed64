#include "io/results/json_line.hpp"
#include "base/json.hpp"

#include <doctest/doctest.h>

#include <clocale>
#include <limits>
#include <random>

namespace millrace {
namespace {

using Json = nlohmann::json;

std::string json_string(std::string_view text) { return JsonWriter().value(text).take(); }
std::string rounded(double number, int decimals) { return JsonWriter().rounded(number, decimals).take(); }

}  // namespace

TEST_CASE("every byte and every code point is escaped as JSON requires") {
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

TEST_CASE("numbers have the shortest text, rounded, and the same in every locale") {
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

TEST_CASE("NaN, infinity and a mask of another size are refused") {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    CHECK_THROWS_AS(JsonWriter().value(bad), std::domain_error);
    CHECK_THROWS_AS(JsonWriter().value(double{bad}), std::domain_error);
    CHECK_THROWS_AS(JsonWriter().rounded(bad, 2), std::domain_error);
    JsonWriter json;
    json.begin_object().key("score");
    CHECK_THROWS_WITH_AS(json.rounded(bad, 2), doctest::Contains("\"score\": "), std::domain_error);
  }
  JsonWriter json;
  CHECK_THROWS_AS(write_rle(std::vector<std::uint32_t>{4, 2, 5}, 4, 3, json), std::invalid_argument);
}

TEST_CASE("a writer refuses brackets that do not match") {
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

TEST_CASE("a line that is not a segment line is refused with its beginning") {
  const std::string good =
      R"({"id": 17, "path": "front/a.jpg", "width": 4, "height": 3, "view": "front", "state": "ok", "objects": [)"
      R"({"box": [0.5, 1.25, 2, 1.34], "score": 0.91234, "class": 2, "name": "car", )"
      R"("rle": {"size": [3, 4], "counts": "426"}, "iou": 0.93, "area": 2}]})";
  CHECK(parse_frame(good).objects.front().name == "car");
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
