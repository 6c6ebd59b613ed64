#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "io/files/json_writer.hpp"
#include "io/results/object_order.hpp"
#include "io/sinks/overlay.hpp"
#include "io/sinks/overlay_text.hpp"

namespace millrace {
namespace {

constexpr std::size_t max_labels = 300;  // placing is quadratic, and nobody reads more

// The letters from U+00C0 to U+017F without their marks.
constexpr std::string_view latin =
    "AAAAAAACEEEEIIIIDNOOOOOxOUUUUYTsaaaaaaaceeeeiiiidnooooo/ouuuuyty"
    "AaAaAaCcCcCcCcDdDdEeEeEeEeEeGgGgGgGgHhHhIiIiIiIiIiIiJjKkkLlLlLlLlLlNnNnNnnNnOoOoOoOoRrRrRrSsSsSsSsTtTtTtUuUuUuUuUu"
    "UuWwYyYZzZzZzs";
static_assert(latin.size() == 0x180 - 0xC0);

std::optional<char> drawable(std::string_view sequence) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned>(static_cast<unsigned char>(sequence[i])); };
  if (sequence.size() == 1 && byte(0) >= 0x20 && byte(0) < 0x7F) return sequence[0];
  if (sequence.size() != 2) return std::nullopt;
  const unsigned code = (byte(0) & 0x1FU) << 6U | (byte(1) & 0x3FU);
  if (code < 0xC0 || code >= 0x180) return std::nullopt;
  return latin[code - 0xC0];
}

std::string drawable_name(const Object& object) {
  std::string name;
  std::string_view rest = object.name;
  while (!rest.empty()) {
    const auto length = static_cast<std::size_t>(std::max(1, utf8_length(rest)));
    const auto letter = drawable(rest.substr(0, length));
    if (!letter) return "class " + std::to_string(object.class_id);
    name += *letter;
    rest.remove_prefix(length);
  }
  return name.empty() ? "class " + std::to_string(object.class_id) : name;
}

std::string score_text(const Object& object) {
  // Not printf, because its decimal point depends on the locale.
  // Values of heatmaps may exceed 1.
  const float score = object.score > 0 ? std::min(object.score, 9999.0F) : 0.0F;
  const auto hundredths = static_cast<int>(std::lround(score * 100));
  return std::to_string(hundredths / 100) + "." + std::to_string(100 + hundredths % 100).substr(1);
}

std::int64_t common_area(const OverlayLabel& a, const OverlayLabel& b) {
  const std::int64_t width = std::min(a.x + a.width, b.x + b.width) - std::max(a.x, b.x);
  const std::int64_t height = std::min(a.y + a.height, b.y + b.height) - std::max(a.y, b.y);
  return width > 0 && height > 0 ? width * height : 0;
}

/// Name and score. If they are too wide for `room`, the end of the name is cut, in the worst case the whole name.
/// Empty if not even the score fits.
std::string fit_text(const Object& object, const LabelFont& font, int room) {
  const std::string score = score_text(object);
  std::string name = drawable_name(object);
  std::string text = name + " " + score;
  while (font.plate_width(text) > room) {
    if (name.empty()) return font.plate_width(score) <= room ? score : std::string();
    name.pop_back();
    text = name + ".. " + score;
  }
  return text;
}

/// Moves the label to the first of twelve positions at its box that covers none of the others.
/// If there is none, it takes the position that covers the smallest area of them.
void choose_position(OverlayLabel& label, const OverlayBox& box, int width, int height,
                     std::span<const OverlayLabel> others) {
  const int left = box.left, right = box.right - label.width;
  const int above = box.top - label.height, below = box.bottom;
  const int bottom = box.bottom - label.height;
  const std::array<std::array<int, 2>, 12> positions{{{left, above},
                                                      {left, box.top},
                                                      {right, above},
                                                      {right, box.top},
                                                      {left, below},
                                                      {right, below},
                                                      {left, bottom},
                                                      {right, bottom},
                                                      {box.right, box.top},
                                                      {left - label.width, box.top},
                                                      {box.right, bottom},
                                                      {left - label.width, bottom}}};
  OverlayLabel best = label;
  std::int64_t smallest = -1;
  for (const auto& [x, y] : positions) {
    label.x = std::clamp(x, 0, width - label.width);
    label.y = std::clamp(y, 0, height - label.height);
    std::int64_t covered = 0;
    for (const auto& other : others) covered += common_area(label, other);
    if (smallest < 0 || covered < smallest) best = label, smallest = covered;
    if (covered == 0) break;
  }
  label = best;
}

}  // namespace

OverlayBox overlay_box(const Object& object, int raster_width, int raster_height, int reduction) {
  const auto edge = [&](float position, int limit) {
    const float scaled = position / static_cast<float>(reduction);
    return scaled > 0 ? static_cast<int>(std::lround(std::min(scaled, static_cast<float>(limit))))
                      : 0;  // 0 for NaN too
  };
  OverlayBox box;
  box.left = std::min(edge(object.x, raster_width), raster_width - 1);
  box.top = std::min(edge(object.y, raster_height), raster_height - 1);
  box.right = std::max(box.left + 1, edge(object.x + object.width, raster_width));
  box.bottom = std::max(box.top + 1, edge(object.y + object.height, raster_height));
  return box;
}

int overlay_font_height(int width, int height) {
  return std::max(12, static_cast<int>(std::ceil(0.015 * std::max(width, height))));
}

std::string class_text(int class_id, const std::string& name) {
  Object object;
  object.class_id = class_id;
  object.name = name;
  return drawable_name(object);
}

std::string label_text(const Object& object) { return drawable_name(object) + " " + score_text(object); }

std::vector<OverlayLabel> place_labels(int raster_width, int raster_height, int reduction,
                                       std::span<const Object> objects) {
  const LabelFont font(overlay_font_height(raster_width, raster_height));
  if (font.plate_height() > raster_height) return {};
  auto order = best_first(objects);
  if (order.size() > max_labels) order.resize(max_labels);
  std::vector<OverlayLabel> labels;
  for (const auto index : order) {
    const Object& object = objects[index];
    const OverlayBox box = overlay_box(object, raster_width, raster_height, reduction);
    // A label is at most as wide as its box or a third of the picture, but there is always room for some 16 letters.
    const int room = std::min(raster_width, std::max({box.right - box.left, raster_width / 3, 12 * font.height}));
    OverlayLabel label{.object = index, .text = fit_text(object, font, room)};
    if (label.text.empty()) continue;
    label.width = font.plate_width(label.text);
    label.height = font.plate_height();
    if (std::int64_t{4} * label.width * label.height > std::int64_t{raster_width} * raster_height) continue;
    choose_position(label, box, raster_width, raster_height, labels);
    labels.push_back(std::move(label));
  }
  return labels;
}

}  // namespace millrace
