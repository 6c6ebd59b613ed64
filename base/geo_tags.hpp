#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

/// The tags of a GeoTIFF (OGC 19-008), which say where its pixels lie on Earth. Those that a file lacks are empty.
struct GeoTags {
  std::vector<double> pixel_scale{}, tie_points{}, transformation{}, parameters{};
  std::vector<std::uint16_t> keys{};
  std::string text{};
  bool operator==(const GeoTags&) const = default;
};

/// Numbers of these tags.
namespace geo_tag {
inline constexpr std::uint32_t pixel_scale = 33550, tie_points = 33922, transformation = 34264, keys = 34735,
                               parameters = 34736, text = 34737;
}  // namespace geo_tag

}  // namespace millrace
