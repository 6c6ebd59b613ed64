#pragma once

#include <opencv2/core/mat.hpp>
#include <string>

namespace millrace {

/// Sizes of text and plate for a font height, in pixels.
/// The font is OpenCV's Hershey Simplex: 21 units above the base line, 7 below.
struct LabelFont {
  explicit LabelFont(int font_height);

  int height;   ///< of the text
  int padding;  ///< between text and the plate's edge
  int plate_height() const { return height + 2 * padding; }
  int plate_width(const std::string& text) const;

  /// The share of each pixel of a plate that the text covers, 0..255, CV_8U.
  cv::Mat coverage(const std::string& text) const;

 private:
  int text_width(const std::string& text) const;

  int oversampling_;  // the text is drawn larger and averaged down: OpenCV's own smoothing is coarse at 12 pixels
  int stroke_;
  double scale_;
};

}  // namespace millrace
