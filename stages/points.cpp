#include "stages/points.hpp"

#include "io/files/json_writer.hpp"

namespace millrace {
namespace {

// An affine takes the centre of the first voxel as 0, 0, 0.
void write_mm(const Affine& affine, const std::vector<Point>& points, JsonWriter& json) {
  json.key("mm").begin_array();
  for (const Point& point : points) {
    json.begin_array();
    for (const auto& [x, y, z, origin] : affine)
      json.rounded(x * (point.columns - 0.5) + y * (point.lines - 0.5) + z * (point.rows - 0.5) + origin, 3);
    json.end_array();
  }
  json.end_array();
}

}  // namespace

// From centre to centre of both grids, as labels go back.
void resize_points(Points& points, const Extent& from, const Extent& to) {
  for (std::vector<Point>& of_channel : points.channels) {
    for (Point& point : of_channel) {
      point.rows = point.rows * to.rows / from.rows;
      point.lines = point.lines * to.lines / from.lines;
      point.columns = point.columns * to.columns / from.columns;
    }
  }
}

void write_points(const Points& points, JsonWriter& json) {
  json.begin_array();
  for (std::size_t channel = 0; channel < points.channels.size(); ++channel) {
    json.begin_object().key("class").value(static_cast<std::int64_t>(channel));
    json.key("name").value(points.names[channel]).key("points").begin_array();
    for (const Point& point : points.channels[channel]) {
      json.begin_array().rounded(point.columns, 3);
      if (points.volume) json.rounded(point.lines, 3);
      json.rounded(point.rows, 3).rounded(static_cast<double>(point.value), 5).end_array();
    }
    json.end_array();
    if (points.affine != Affine{}) write_mm(points.affine, points.channels[channel], json);
    json.end_object();
  }
  json.end_array();
}

}  // namespace millrace
