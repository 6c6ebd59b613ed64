#include "stages/class_map.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>

#include "io/files/json_writer.hpp"
#include "io/results/json_line.hpp"
#include "io/results/rle.hpp"
#include "stages/components.hpp"

namespace millrace {

namespace {

/// With six digits: a cell has few square millimetres, and a slide many.
void write_rounded(double number, JsonWriter& json) {
  json.rounded(number, std::clamp(5 - static_cast<int>(std::floor(std::log10(number))), 0, 9));
}

/// Writes the number of pixels or voxels, and how much that is if the spacing is known.
void write_size(const ClassMap& map, std::int64_t values, JsonWriter& json) {
  const auto& [x, y, z] = map.spacing_mm;
  const double size = static_cast<double>(values) * x * y;
  json.key(map.volume ? "voxels" : "pixels").value(values);
  if (map.volume && z * size > 0) write_rounded(z * size / 1000, json.key("ml"));
  if (!map.volume && size > 0) write_rounded(size, json.key("mm2"));
}

/// Boxes are x, y, width, height; of a volume x, y, z, width, height, depth.
void write_instances(const ClassMap& map, const std::vector<Component>& components, std::size_t label,
                     JsonWriter& json) {
  json.key("instances").begin_array();
  for (const Component& one : components) {
    if (one.label != label) continue;
    const Extent &first = one.first, &last = one.last;
    json.begin_object().key("box").begin_array().value(std::int64_t{first.columns});
    if (map.volume) json.value(std::int64_t{first.lines});
    json.value(std::int64_t{first.rows}).value(std::int64_t{last.columns - first.columns + 1});
    if (map.volume) json.value(std::int64_t{last.lines - first.lines + 1});
    json.value(std::int64_t{last.rows - first.rows + 1}).end_array();
    write_size(map, one.values, json);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

void write_class_map(const ClassMap& map, JsonWriter& json) {
  std::vector<bool> background;
  for (const std::string& name : map.names) background.push_back(name == "background");
  ComponentFinder finder(map.size, static_cast<int>(map.names.size()), background, map.instances);
  std::array<std::int64_t, 256> counts{};
  std::vector<std::uint8_t> all;
  map.labels->read([&](int /*first*/, std::span<const std::uint8_t> labels) {
    for (const std::uint8_t label : labels) ++counts[label];
    if (map.one_slab) all.insert(all.end(), labels.begin(), labels.end());
    if (map.instances > 0) finder.add(labels);
  });
  const std::vector<Component> components = finder.finish();
  json.begin_array();
  for (std::size_t label = 0; label < map.names.size(); ++label) {
    if (counts[label] == 0) continue;
    json.begin_object().key("label").value(static_cast<std::int64_t>(label)).key("name").value(map.names[label]);
    write_size(map, counts[label], json);
    if (map.one_slab) {
      std::vector<std::uint8_t> mask(all.size());
      std::ranges::transform(all, mask.begin(), [&](std::uint8_t one) { return one == label ? 1 : 0; });
      json.key("rle");
      write_rle(rle_encode(mask, map.size.columns, map.size.rows), map.size.columns, map.size.rows, json);
    }
    if (map.instances > 0 && !background[label]) write_instances(map, components, label, json);
    json.end_object();
  }
  json.end_array();
}

void write_hole_pixels(const std::int64_t& pixels, JsonWriter& json) { json.value(pixels); }

}  // namespace millrace
