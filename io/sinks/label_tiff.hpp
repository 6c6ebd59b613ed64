#pragma once

#include "base/geo_tags.hpp"
#include "io/results/label_rows.hpp"

namespace millrace {

/// Side of a tile, in pixels.
inline constexpr int label_tile = 512;

/// Writes labels as a tiled TIFF of 8-bit grey, with deflate. Each further page has half the width and height, until a
/// page fits one tile; its pixel is the upper left one of four. It is a BigTIFF if the tiles of all pages have more than
/// 4 GB before compression. The first page has the tags of a GeoTIFF.
/// The descriptor is open for reading and writing, and stays open. Memory is a row of tiles.
/// Throws std::runtime_error if the library fails.
using LabelTiffWriter = void(int descriptor, int width, int height, const GeoTags& geo, const LabelRows& labels);

/// The writer in libmillrace_tiff.so. Throws PluginError.
LabelTiffWriter& find_label_tiff_writer();

inline constexpr const char* label_tiff_symbol = "millrace_write_label_tiff";

}  // namespace millrace
