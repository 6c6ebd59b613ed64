#include "io/sinks/label_map.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "io/results/object_order.hpp"
#include "io/sinks/image_write.hpp"
#include "io/sinks/mask_spans.hpp"

namespace millrace {
namespace {

constexpr int band_rows = 32;  // a band of the widest pictures fits into the second-level cache

struct Layer {
  std::uint16_t label = 0;
  int begin = 0, end = 0;  // rows
  std::vector<ColumnSpan> spans;
};

Layer make_layer(std::size_t index, const Object& object, int width, int height) {
  Layer layer{static_cast<std::uint16_t>(index + 1), height, 0, column_spans(object.rle_counts, width, height)};
  for (const auto& span : layer.spans) {
    layer.begin = std::min(layer.begin, span.begin);
    layer.end = std::max(layer.end, span.end);
  }
  return layer;
}

/// The masks in the order of painting, lowest score first, so that higher scores cover lower ones.
std::vector<Layer> make_layers(int width, int height, std::span<const Object> objects) {
  const auto order = best_first(objects);
  std::vector<Layer> layers;
  for (auto i = order.rbegin(); i != order.rend(); ++i) {
    if (!objects[*i].rle_counts.empty()) layers.push_back(make_layer(*i, objects[*i], width, height));
  }
  return layers;
}

void paint(const Layer& layer, int top, int width, std::vector<std::uint16_t>& band) {
  const int bottom = top + band_rows;
  if (layer.end <= top || layer.begin >= bottom) return;
  for (const auto& span : layer.spans) {
    const int end = std::min(span.end, bottom) - top;
    for (int y = std::max(span.begin, top) - top; y < end; ++y) {
      band[static_cast<std::size_t>(y) * static_cast<std::size_t>(width) + static_cast<std::size_t>(span.column)] =
          layer.label;
    }
  }
}

}  // namespace

std::vector<std::uint8_t> encode_label_map(int width, int height, std::span<const Object> objects) {
  if (objects.size() > std::numeric_limits<std::uint16_t>::max()) {
    throw std::invalid_argument("a label map can have at most 65,535 objects, but this picture has " +
                                std::to_string(objects.size()) + ": give it fewer boxes in the manifest");
  }
  const auto layers = make_layers(width, height, objects);
  std::vector<std::uint16_t> band(static_cast<std::size_t>(width) * band_rows);
  GreyPng png(width, height, 16);
  for (int y = 0; y < height; ++y) {
    const int line = y % band_rows;
    // Masks are stored by column, a PNG by row. Painting a band at a time needs no raster of the whole picture.
    if (line == 0) {
      std::fill(band.begin(), band.end(), std::uint16_t{0});
      for (const auto& layer : layers) paint(layer, y, width, band);
    }
    png.add_row(band.data() + std::ptrdiff_t{line} * width);
  }
  return png.finish();
}

}  // namespace millrace
