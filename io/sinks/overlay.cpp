#include "io/sinks/overlay.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <opencv2/imgproc.hpp>
#include <stdexcept>
#include <utility>
#include <vector>

#include "io/results/object_order.hpp"
#include "io/sinks/mask_spans.hpp"
#include "io/sinks/overlay_text.hpp"

namespace millrace {
namespace {

constexpr int fill_percent = 40;

/// Relative luminance of an sRGB colour, 0 to 1 (WCAG 2.1).
double luminance(Colour colour) {
  const auto linear = [](std::uint8_t value) {
    const double v = value / 255.0;
    return v <= 0.04045 ? v / 12.92 : std::pow((v + 0.055) / 1.055, 2.4);
  };
  return 0.2126 * linear(colour.red) + 0.7152 * linear(colour.green) + 0.0722 * linear(colour.blue);
}

Colour mix(Colour a, Colour b, int percent_of_b) {
  const auto channel = [&](int from, int to) {
    return static_cast<std::uint8_t>((from * (100 - percent_of_b) + to * percent_of_b + 50) / 100);
  };
  return {channel(a.red, b.red), channel(a.green, b.green), channel(a.blue, b.blue)};
}

cv::Vec3b as_pixel(Colour colour) { return {colour.red, colour.green, colour.blue}; }

/// The raster rows (or columns) whose sample, the middle of their block, is in [begin, end) of the picture.
cv::Range sampled(int begin, int end, int reduction, int full, int reduced) {
  // A short last block is sampled at its last row. So what reaches the edge of the picture reaches it here too.
  const auto first = [&](int edge) {
    return edge == full ? reduced : std::min((edge - reduction / 2 + reduction - 1) / reduction, reduced);
  };
  return {first(begin), first(end)};
}

/// A mask at the scale of the raster. `area` is its part of the raster.
/// `inside` is 255 where the object is, with a frame of zeros one pixel wide.
struct RasterMask {
  cv::Rect area;
  cv::Mat inside;
};

RasterMask raster_mask(const Object& object, const PictureInfo& info) {
  const auto spans = column_spans(object.rle_counts, info.width, info.height);
  std::vector<ColumnSpan> reduced;
  cv::Rect area;
  for (const auto& span : spans) {
    const auto columns = sampled(span.column, span.column + 1, info.reduction, info.width, info.pixel_width);
    const auto rows = sampled(span.begin, span.end, info.reduction, info.height, info.pixel_height);
    if (columns.empty() || rows.empty()) continue;
    reduced.push_back({columns.start, rows.start, rows.end});
    area |= cv::Rect(columns.start, rows.start, 1, rows.size());
  }
  RasterMask mask{area, cv::Mat::zeros(area.height + 2, area.width + 2, CV_8U)};
  for (const auto& span : reduced)
    mask.inside.col(span.column - area.x + 1).rowRange(span.begin - area.y + 1, span.end - area.y + 1) = 255;
  return mask;
}

/// Blends the colour into the mask's pixels, and draws the outline from the edge inwards.
void draw_mask(cv::Mat& picture, const RasterMask& mask, Colour colour, int line_width) {
  if (mask.area.empty()) return;
  cv::Mat depth;  // distance from the nearest pixel outside
  cv::distanceTransform(mask.inside, depth, cv::DIST_L2, cv::DIST_MASK_3);
  const cv::Vec3b full = as_pixel(colour);
  std::array<cv::Vec3b, 256> mixed;  // per value of a channel
  // A table, because a mask can have millions of pixels.
  for (int value = 0; value < 256; ++value) {
    const auto grey = static_cast<std::uint8_t>(value);
    mixed[grey] = as_pixel(mix({grey, grey, grey}, colour, fill_percent));
  }
  for (int y = 0; y < mask.area.height; ++y) {
    const auto* inside = mask.inside.ptr<std::uint8_t>(y + 1) + 1;
    const auto* distance = depth.ptr<float>(y + 1) + 1;
    auto* pixels = picture.ptr<cv::Vec3b>(mask.area.y + y) + mask.area.x;
    for (int x = 0; x < mask.area.width; ++x) {
      if (inside[x] == 0) continue;
      auto& pixel = pixels[x];
      pixel = distance[x] <= static_cast<float>(line_width)
                  ? full
                  : cv::Vec3b(mixed[pixel[0]][0], mixed[pixel[1]][1], mixed[pixel[2]][2]);
    }
  }
}

/// Draws the four lines of the box, from its edges inwards.
void draw_box(cv::Mat& picture, const Object& object, int reduction, Colour colour, int line_width) {
  const OverlayBox edges = overlay_box(object, picture.cols, picture.rows, reduction);
  const cv::Rect box(edges.left, edges.top, edges.right - edges.left, edges.bottom - edges.top);
  const cv::Scalar value(colour.red, colour.green, colour.blue);
  const int across = std::min(line_width, box.width), down = std::min(line_width, box.height);
  picture(cv::Rect(box.x, box.y, box.width, down)).setTo(value);
  picture(cv::Rect(box.x, box.br().y - down, box.width, down)).setTo(value);
  picture(cv::Rect(box.x, box.y, across, box.height)).setTo(value);
  picture(cv::Rect(box.br().x - across, box.y, across, box.height)).setTo(value);
}

void draw_label(cv::Mat& picture, const OverlayLabel& label, const LabelFont& font, Colour plate) {
  const cv::Mat coverage = font.coverage(label.text);
  const Colour text = text_colour(plate);
  for (int y = 0; y < label.height; ++y) {
    const auto* share = coverage.ptr<std::uint8_t>(y);
    auto* pixels = picture.ptr<cv::Vec3b>(label.y + y) + label.x;
    for (int x = 0; x < label.width; ++x) pixels[x] = as_pixel(mix(plate, text, share[x] * 100 / 255));
  }
}

}  // namespace

Colour class_colour(int class_id) {
  constexpr std::array<Colour, 7> hues{
      {{230, 159, 0}, {86, 180, 233}, {0, 158, 115}, {204, 121, 167}, {240, 228, 66}, {213, 94, 0}, {0, 114, 178}}};
  constexpr Colour white{255, 255, 255}, black{};
  const auto turn = static_cast<unsigned>(class_id) % (3 * hues.size());
  const Colour hue = hues[turn % hues.size()];
  switch (turn / hues.size()) {
    case 1:
      return mix(hue, white, 50);
    case 2:
      return mix(hue, black, 45);
    default:
      return hue;
  }
}

double contrast_ratio(Colour a, Colour b) {
  const auto [darker, lighter] = std::minmax({luminance(a), luminance(b)});
  return (lighter + 0.05) / (darker + 0.05);
}

Colour text_colour(Colour plate) {
  constexpr Colour white{255, 255, 255}, black{};
  return contrast_ratio(black, plate) >= contrast_ratio(white, plate) ? black : white;
}

void draw_classes(const PixelBuffer& raster, const LabelRows& labels, std::span<const std::string> names) {
  cv::Mat picture(raster.height, raster.width, CV_8UC3, raster.data.get());
  const auto width = static_cast<std::size_t>(raster.width);
  std::array<bool, 256> drawn{}, found{};
  for (std::size_t k = 0; k < std::min(names.size(), drawn.size()); ++k) drawn[k] = names[k] != "background";
  const auto draw_row = [&](int y, const std::uint8_t* above, const std::uint8_t* row, const std::uint8_t* below) {
    auto* pixels = picture.ptr<cv::Vec3b>(y);
    for (std::size_t x = 0; x < width; ++x) {
      const std::uint8_t label = row[x];
      if (!drawn[label]) continue;
      found[label] = true;
      const bool edge = above[x] != label || below[x] != label || row[x > 0 ? x - 1 : x] != label ||
                        row[x + 1 < width ? x + 1 : x] != label;
      const Colour colour = class_colour(label);
      const cv::Vec3b was = pixels[x];
      pixels[x] = as_pixel(edge ? colour : mix({was[0], was[1], was[2]}, colour, fill_percent));
    }
  };
  // A row is drawn when the one below it is known.
  std::vector<std::uint8_t> above, row;
  int rows = 0;
  labels.read([&](int /*first*/, std::span<const std::uint8_t> slab) {
    for (; !slab.empty(); slab = slab.subspan(width), ++rows) {
      if (rows >= raster.height || slab.size() < width)
        throw std::invalid_argument("draw_classes: the labels do not have the size of the raster");
      if (rows > 0) draw_row(rows - 1, above.data(), row.data(), slab.data());
      above = std::exchange(row, {slab.begin(), slab.begin() + static_cast<std::ptrdiff_t>(width)});
      if (rows == 0) above = row;
    }
  });
  if (rows != raster.height) throw std::invalid_argument("draw_classes: the labels do not have the size of the raster");
  draw_row(rows - 1, above.data(), row.data(), row.data());
  const LabelFont font(overlay_font_height(raster.width, raster.height));
  OverlayLabel plate;
  plate.x = plate.y = font.padding;
  plate.height = font.plate_height();
  for (int k = 0; k < 256; ++k) {
    if (!found[static_cast<std::size_t>(k)]) continue;
    plate.text = class_text(k, names[static_cast<std::size_t>(k)]);
    plate.width = font.plate_width(plate.text);
    // A list that does not fit is cut, and a name that does not fit is left out.
    if (plate.y + plate.height > raster.height) break;
    if (plate.x + plate.width > raster.width) continue;
    draw_label(picture, plate, font, class_colour(k));
    plate.y += plate.height;
  }
}

void draw_overlay(const PixelBuffer& raster, const PictureInfo& info, std::span<const Object> objects) {
  cv::Mat picture(raster.height, raster.width, CV_8UC3, raster.data.get());
  const LabelFont font(overlay_font_height(raster.width, raster.height));
  const int line_width = std::max(2, font.height / 7);
  auto order = best_first(objects);
  // The highest score is drawn last and so is on top. All boxes follow all masks, so no mask covers a box.
  std::reverse(order.begin(), order.end());
  for (const auto i : order) {
    if (!objects[i].rle_counts.empty())
      draw_mask(picture, raster_mask(objects[i], info), class_colour(objects[i].class_id), line_width);
  }
  for (const auto i : order)
    draw_box(picture, objects[i], info.reduction, class_colour(objects[i].class_id), line_width);
  auto labels = place_labels(raster.width, raster.height, info.reduction, objects);
  for (auto label = labels.rbegin(); label != labels.rend(); ++label) {
    draw_label(picture, *label, font, class_colour(objects[label->object].class_id));
  }
}

}  // namespace millrace
