#include "stages/field.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <stdexcept>
#include <string>

#include "io/files/json_writer.hpp"

namespace millrace {
namespace {

void write_number(const int& value, JsonWriter& json) { json.value(value); }
constexpr Keys letter_keys{"letter"};
void write_letter(const std::string& value, std::size_t index, JsonWriter& json) {
  json.key(letter_keys("letter")).value(value.substr(index, 1));
}

constexpr Field<int> inner{"inner"};
constexpr Field<int> number{"number", write_number};
constexpr Field<std::string> letters{"letters", letter_keys, write_letter};
constexpr Field<int> other_inner{"inner"};

TEST_CASE("a column is written once and read by its field") {
  Columns columns;
  CHECK(columns.find(inner) == nullptr);
  CHECK_THROWS_WITH_AS(columns.get(inner), doctest::Contains("'inner' is read but was not written"), std::logic_error);
  columns.set(inner, 7);
  CHECK(columns.get(inner) == 7);
  CHECK_THROWS_WITH_AS(columns.set(inner, 8), doctest::Contains("'inner' is written twice"), std::logic_error);
  CHECK(columns.get(inner) == 7);
  CHECK(columns.find(other_inner) == nullptr);  // another field with the same name is another field
  columns.drop(inner);
  CHECK(columns.find(inner) == nullptr);
}

TEST_CASE("fields define how they are written to the line and to objects") {
  CHECK_FALSE(inner.in_line);
  CHECK(number.in_line);
  CHECK(letters.in_line);
  CHECK(number.object_keys.empty());
  CHECK(std::ranges::equal(letters.object_keys, letter_keys.all()));
  Columns columns;
  columns.set(number, 3);
  columns.set(inner, 1);
  columns.set(letters, std::string("ab"));
  columns.drop_unwritten();
  CHECK(columns.find(inner) == nullptr);
  JsonWriter json;
  json.begin_object();
  columns.write_line(json);
  json.key("object").begin_object();
  columns.write_object(1, json);
  json.end_object().end_object();
  CHECK(json.take() == R"({"number": 3, "object": {"letter": "b"}})");
}

TEST_CASE("a stage may access only the fields that it lists") {
  const Access access{"greedy", {&inner}, {&number}};
  Columns columns;
  columns.set(inner, 1);
  columns.set(letters, std::string("x"));
  columns.allow(&access);
  CHECK(columns.get(inner) == 1);
  columns.set(number, 2);
#ifdef MILLRACE_CHECK_FIELDS
  CHECK_THROWS_WITH_AS(columns.find(letters), "stage 'greedy' reads field 'letters' without listing it in its info()",
                       std::logic_error);
  CHECK_THROWS_AS(columns.get(number), std::logic_error);  // the stage lists it for writing only
  CHECK_THROWS_WITH_AS(columns.set(other_inner, 1), doctest::Contains("writes field 'inner'"), std::logic_error);
#else
  CHECK(columns.get(letters) == "x");  // only builds for development check it
#endif
  columns.allow(nullptr);
  CHECK(columns.get(letters) == "x");
}

}  // namespace
}  // namespace millrace
