#include "stages/class_map.hpp"

#include <doctest/doctest.h>

#include "base/json.hpp"
#include "io/files/json_writer.hpp"

namespace millrace {
namespace {

ClassMap map_of(const Extent& size, const std::vector<std::uint8_t>& labels) {
  ClassMap map;
  map.size = size;
  map.volume = size.lines > 1;
  map.names = {"background", "cell", "vessel"};
  const auto kept = std::make_shared<const std::vector<std::uint8_t>>(labels);
  map.labels =
      std::make_shared<LabelsInMemory>(std::shared_ptr<const std::uint8_t[]>(kept, kept->data()), labels.size());
  return map;
}

nlohmann::json line_of(const ClassMap& map) {
  JsonWriter json;
  write_class_map(map, json);
  return nlohmann::json::parse(json.text());
}

TEST_CASE("a picture has pixels and square millimetres of each class, and its instances from the smallest size on") {
  ClassMap map = map_of({3, 1, 6}, {1, 1, 0, 0, 0, 2,    //
                                    0, 0, 0, 255, 1, 2,  //
                                    0, 2, 0, 0, 1, 0});
  map.spacing_mm = {0.5, 0.25, 0};
  CHECK(line_of(map) == nlohmann::json::parse(R"([
    {"label": 0, "name": "background", "pixels": 10, "mm2": 1.25},
    {"label": 1, "name": "cell", "pixels": 4, "mm2": 0.5},
    {"label": 2, "name": "vessel", "pixels": 3, "mm2": 0.375}])"));
  // Six digits, at most nine behind the point: a part of a slide has an area.
  map.spacing_mm = {0.000499, 0.000499, 0};
  CHECK(line_of(map)[2]["mm2"] == 7.47e-07);
  map.spacing_mm = {12345.678, 1, 0};
  CHECK(line_of(map)[2]["mm2"] == 37037);
  map.instances = 2;
  map.spacing_mm = {};
  CHECK(line_of(map) == nlohmann::json::parse(R"([
    {"label": 0, "name": "background", "pixels": 10},
    {"label": 1, "name": "cell", "pixels": 4, "instances": [{"box": [0, 0, 2, 1], "pixels": 2},
                                                            {"box": [4, 1, 1, 2], "pixels": 2}]},
    {"label": 2, "name": "vessel", "pixels": 3, "instances": [{"box": [5, 0, 1, 2], "pixels": 2}]}])"));
}

TEST_CASE("a volume has voxels and millilitres, and boxes of x, y, z and their sizes") {
  // Two slices of two lines with three columns.
  ClassMap map = map_of({2, 2, 3}, {0, 0, 0, 0, 0, 1,  //
                                    0, 0, 0, 0, 1, 0});
  map.spacing_mm = {10, 10, 20};
  map.instances = 1;
  CHECK(line_of(map) == nlohmann::json::parse(R"([
    {"label": 0, "name": "background", "voxels": 10, "ml": 20.0},
    {"label": 1, "name": "cell", "voxels": 2, "ml": 4.0,
     "instances": [{"box": [1, 1, 0, 2, 1, 2], "voxels": 2, "ml": 4.0}]}])"));
}

}  // namespace
}  // namespace millrace
