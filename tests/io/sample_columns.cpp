// Writes an output folder for columns_test.py and reduce_test.py: 2,000 pictures in two segments, with 50 objects each.
// Every object has a row in a side column: segment, picture within it, object, 1.
#include <cstdio>
#include <filesystem>

#include "base/half.hpp"
#include "io/results/segments.hpp"
#include "io/results/side_column.hpp"

namespace {

using namespace millrace;

constexpr int segments = 2, pictures = 1000, objects = 50;

std::string line_of(int segment, int picture) {
  JsonWriter json;
  json.begin_object().key("id").value(segment * pictures + picture);
  json.key("path").value(std::to_string(segment) + "/" + std::to_string(picture) + ".jpg");
  json.key("view").value("all").key("state").value("ok").key("objects").begin_array();
  for (int object = 0; object < objects; ++object) {
    json.begin_object().key("box").begin_array().value(object).value(0).value(1).value(1).end_array();
    json.key("score")
        .value(0.5F)
        .key("class")
        .value(object % 3)
        .key("name")
        .value("class" + std::to_string(object % 3));
    std::vector<std::uint16_t> row;
    for (const int value : {segment, picture, object, 1}) row.push_back(to_f16(static_cast<float>(value)));
    write_row("embed", row, json.key("embed"));
    json.end_object();
  }
  json.end_array().end_object();
  return json.take();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2) return std::fprintf(stderr, "usage: io_sample_columns FOLDER [PLAN_HASH]\n"), 2;
  std::filesystem::create_directories(argv[1]);
  SegmentStore store(argv[1], argc > 2 ? argv[2] : "plan");
  for (int segment = 0; segment < segments; ++segment) {
    std::vector<std::int64_t> ids;
    std::vector<std::vector<int>> batches;
    for (int picture = 0; picture < pictures; ++picture) {
      ids.push_back(segment * pictures + picture);
      batches.push_back({picture});
    }
    store.open_segment(segment, ids, batches);
    for (int picture = pictures - 1; picture >= 0; --picture)  // in reverse: the rows must follow the plan
      store.append(segment, picture,
                   {{segment * pictures + picture, line_of(segment, picture), true, Reason::internal, objects}});
  }
  return 0;
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
