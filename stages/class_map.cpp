#include "stages/class_map.hpp"

#include <algorithm>
#include <cstdint>
#include <span>

#include "io/files/json_writer.hpp"
#include "io/results/json_line.hpp"
#include "io/results/rle.hpp"

namespace millrace {

void write_class_map(const ClassMap& map, JsonWriter& json) {
  std::array<std::int64_t, 256> counts{};
  std::vector<std::uint8_t> all;
  map.labels->read([&](int /*first*/, std::span<const std::uint8_t> labels) {
    for (const std::uint8_t label : labels) ++counts[label];
    if (map.one_slab) all.insert(all.end(), labels.begin(), labels.end());
  });
  const auto& [x, y, z] = map.spacing_mm;
  json.begin_array();
  for (std::size_t label = 0; label < map.names.size(); ++label) {
    if (counts[label] == 0) continue;
    json.begin_object().key("label").value(static_cast<std::int64_t>(label)).key("name").value(map.names[label]);
    json.key(map.volume ? "voxels" : "pixels").value(counts[label]);
    if (map.volume && x * y * z > 0) json.key("ml").rounded(static_cast<double>(counts[label]) * (x * y * z) / 1000, 4);
    if (map.one_slab) {
      std::vector<std::uint8_t> mask(all.size());
      std::ranges::transform(all, mask.begin(), [&](std::uint8_t one) { return one == label ? 1 : 0; });
      json.key("rle");
      write_rle(rle_encode(mask, map.size.columns, map.size.rows), map.size.columns, map.size.rows, json);
    }
    json.end_object();
  }
  json.end_array();
}

}  // namespace millrace
