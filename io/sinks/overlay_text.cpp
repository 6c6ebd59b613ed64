#include "io/sinks/overlay_text.hpp"

#include <algorithm>
#include <cmath>
#include <opencv2/imgproc.hpp>

namespace millrace {
namespace {

constexpr int font = cv::FONT_HERSHEY_SIMPLEX;
constexpr double units_above = 21, units_below = 7;

}  // namespace

LabelFont::LabelFont(int font_height)
    : height(font_height),
      padding(std::max(2, font_height / 5)),
      oversampling_(font_height < 48 ? 4 : 1),
      stroke_(std::max(1, static_cast<int>(std::lround(oversampling_ * font_height / 10.0)))),
      scale_(oversampling_ * font_height / (units_above + units_below)) {}

int LabelFont::text_width(const std::string& text) const {
  int baseline = 0;
  const int width = cv::getTextSize(text, font, scale_, stroke_, &baseline).width;
  return (width + oversampling_ - 1) / oversampling_;
}

int LabelFont::plate_width(const std::string& text) const { return text_width(text) + 2 * padding; }

cv::Mat LabelFont::coverage(const std::string& text) const {
  const cv::Size plate(plate_width(text), plate_height());
  cv::Mat large = cv::Mat::zeros(plate * oversampling_, CV_8U);
  const int baseline =
      static_cast<int>(std::lround(oversampling_ * (padding + height * units_above / (units_above + units_below))));
  cv::putText(large, text, {oversampling_ * padding, baseline}, font, scale_, cv::Scalar(255), stroke_, cv::LINE_AA);
  if (oversampling_ == 1) return large;
  cv::Mat small;
  cv::resize(large, small, plate, 0, 0, cv::INTER_AREA);
  return small;
}

}  // namespace millrace
