#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "gpu/letterbox.hpp"
#include "gpu/ops/find_boxes.hpp"

/// The numeric core by its definitions, one value at a time, in double precision.
/// Tests compare host and GPU with it. It shares no code with either.
namespace millrace::reference {

/// The weighted mean along one axis. With antialiasing the weights are a triangle: its half width is from / to pixels,
/// but at least one. Without it (cv2_linear) they are linear between the two nearest pixels.
/// Beyond the border of the picture the border pixel counts.
template <class Value>
double filtered(ResizeFilter filter, int from, int to, int i, const Value& value) {
  const double ratio = static_cast<double>(from) / to, centre = (i + 0.5) * ratio - 0.5;
  if (filter == ResizeFilter::cv2_linear) {
    const double inside = std::clamp(centre, 0.0, from - 1.0), left = std::floor(inside), share = inside - left;
    const int at = static_cast<int>(left);
    return (1 - share) * value(at) + (share > 0 ? share * value(at + 1) : 0);
  }
  const double width = std::max(1.0, ratio);
  double sum = 0, weights = 0;
  for (int k = std::max(0, static_cast<int>(centre - width)); k < from && k <= centre + width; ++k) {
    const double weight = 1 - std::abs(k - centre) / width;
    if (weight <= 0) continue;
    sum += weight * value(k);
    weights += weight;
  }
  return sum / weights;
}

/// The value of an input's element before normalisation: a level of 0 to 255.
inline double level(const Image8& raster, const LetterboxGeometry& g, const InputSpec& spec, int x, int y, int plane) {
  const int column = x - g.left, row = y - g.top;
  if (column < 0 || row < 0 || column >= g.resized_width || row >= g.resized_height)
    return double{spec.pad[static_cast<std::size_t>(plane)]};
  const int channel = spec.bgr ? 2 - plane : plane;
  return filtered(spec.filter, raster.height, g.resized_height, row, [&](int source_row) {
    return filtered(spec.filter, raster.width, g.resized_width, column, [&](int source_column) {
      return static_cast<double>(raster.data[(std::int64_t{source_row} * raster.width + source_column) * 3 + channel]);
    });
  });
}

struct Found {
  double x0, y0, x1, y1, score;
  int class_id;
};

/// Finds the boxes of one picture of an output: best first, in picture pixels and clipped.
/// `margin` is the distance of the closest decision from its threshold.
class Search {
 public:
  Search(const BoxSearch& search, const LetterboxGeometry& geometry) : search_(search), g_(geometry) {}

  std::vector<Found> run(std::span<const float> output) {
    std::vector<Found> all;
    for (int i = 0; i < search_.head.boxes; ++i) {
      const Found found = search_.head.layout == HeadLayout::v8 ? v8(output, i) : end_to_end(output, i);
      decide(found.score - double{search_.min_score});
      if (found.score < double{search_.min_score}) continue;
      if (!search_.wanted.empty() && search_.wanted[static_cast<std::size_t>(found.class_id)] == 0) continue;
      const Found shown = in_picture(found);
      const double width = shown.x1 - shown.x0, height = shown.y1 - shown.y0;
      if (width <= 0 || height <= 0) continue;
      decide((width * height - search_.min_area) / 100);
      if (width * height >= search_.min_area) all.push_back(found);
    }
    std::stable_sort(all.begin(), all.end(), [](const Found& a, const Found& b) { return a.score > b.score; });
    std::vector<Found> kept;
    for (const Found& one : all) {
      if (static_cast<int>(kept.size()) > search_.max_boxes) break;
      const bool crossed_out = std::any_of(kept.begin(), kept.end(), [&](const Found& better) {
        if (search_.class_aware && better.class_id != one.class_id) return false;
        const double overlap = iou(better, one);
        decide(overlap - search_.iou_threshold);
        return overlap > search_.iou_threshold;
      });
      if (!crossed_out) kept.push_back(one);
    }
    more = static_cast<int>(kept.size()) > search_.max_boxes;
    if (more) kept.pop_back();
    for (Found& one : kept) one = in_picture(one);
    return kept;
  }

  double margin = 1;
  bool more = false;

 private:
  void decide(double difference) { margin = std::min(margin, std::abs(difference)); }

  Found v8(std::span<const float> output, int i) const {
    const auto at = [&](int channel) {
      return double{output[static_cast<std::size_t>(channel * search_.head.boxes + i)]};
    };
    return best_class({at(0) - at(2) / 2, at(1) - at(3) / 2, at(0) + at(2) / 2, at(1) + at(3) / 2, -1, 0},
                      [&](int c) { return at(4 + c); });
  }

  static Found end_to_end(std::span<const float> output, int i) {
    const auto at = [&](int channel) { return double{output[static_cast<std::size_t>(i * 6 + channel)]}; };
    return {at(0), at(1), at(2), at(3), at(4), static_cast<int>(at(5))};
  }

  template <class Score>
  Found best_class(Found found, const Score& score) const {
    for (int c = 0; c < search_.head.classes; ++c) {
      if (score(c) > found.score) found.score = score(c), found.class_id = c;
    }
    return found;
  }

  static double iou(const Found& a, const Found& b) {
    const double w = std::max(0.0, std::min(a.x1, b.x1) - std::max(a.x0, b.x0)),
                 h = std::max(0.0, std::min(a.y1, b.y1) - std::max(a.y0, b.y0));
    return w * h / ((a.x1 - a.x0) * (a.y1 - a.y0) + (b.x1 - b.x0) * (b.y1 - b.y0) - w * h);
  }

  [[nodiscard]] Found in_picture(Found box) const {
    const auto x = [&](double value) {
      return std::clamp((value - g_.left) / g_.scale_x, 0.0, 1.0 * g_.picture_width);
    };
    const auto y = [&](double value) {
      return std::clamp((value - g_.top) / g_.scale_y, 0.0, 1.0 * g_.picture_height);
    };
    return {x(box.x0), y(box.y0), x(box.x1), y(box.y1), box.score, box.class_id};
  }

  const BoxSearch& search_;
  const LetterboxGeometry& g_;
};

}  // namespace millrace::reference
