#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// What the description of a TIFF says about its planes. Each plane is a page, and has one or more channels.
struct TiffStack {
  /// Planes that follow one another, both in the order of planes and among the pages.
  struct Run {
    int page = 0;              ///< of the first plane, from 0
    int z = 0, c = 0, t = 0;   ///< of the first plane
    std::optional<int> count;  ///< none: all up to the last plane
  };

  const char* format = "";    ///< in words
  int width = 0, height = 0;  ///< of a plane; 0: not said
  int slices = 1, channels = 1, times = 1;
  bool counts_planes = false;  ///< each of `channels` is a plane, whose samples are further channels, as in ImageJ
  std::string order = "CZT";   ///< of the planes: the first letter changes from one plane to the next
  std::vector<Run> runs{Run{}};
  /// RegionInfo::spacing_mm; of ImageJ only that of slices.
  std::array<double, 3> spacing_mm{};
  /// The unit of the resolution of a page, of ImageJ; 0: unknown.
  double resolution_unit_mm = 0;

  /// How many of the channels have a plane of their own, if a page has so many samples.
  /// Throws PictureError if the samples contradict the channels.
  int planes_of_channels(int samples) const;
  /// The pages of a point in time, from 0: [slice][plane of channels].
  /// Throws PictureError if there is no such time, or if a plane has no page or several.
  std::vector<int> pages(int time, int planes_of_channels) const;
};

/// Reads OME-XML, or the description of an ImageJ stack. None: the text is neither.
/// Throws PictureError: corrupt_data, unsupported_format for planes in several files, too_large for too many planes, or for
/// XML that could need more memory than `memory_bytes`.
std::optional<TiffStack> read_tiff_stack(std::string_view description, std::int64_t memory_bytes);

}  // namespace millrace
