#include "gpu/resize_linear.hpp"

#include <doctest/doctest.h>

#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <random>

using namespace millrace;

// OpenCV chooses its instructions by the CPU. The test resize_linear_without_avx_test sets OPENCV_CPU_DISABLE:
// it shows that OpenCV's other instructions give the same bytes.
TEST_CASE("the linear filter equals OpenCV's, to the bit") {
  const int sides[] = {1, 2, 3, 7, 64, 97, 128, 333};
  std::mt19937 random(5);
  for (const int width : sides) {
    for (const int height : sides) {
      std::vector<std::uint8_t> pixels(3 * static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
      for (auto& value : pixels) value = static_cast<std::uint8_t>(random());
      const cv::Mat from(height, width, CV_8UC3, pixels.data());
      for (const auto& [to_width, to_height] : {std::pair{1, 1},
                                                {64, 64},
                                                {width, 5},
                                                {51, height},
                                                {2 * width, 2 * height},
                                                {(width + 1) / 2, (height + 1) / 2},
                                                {640, 3},
                                                {3, 416},
                                                {170, 94}}) {
        CAPTURE(width);
        CAPTURE(height);
        CAPTURE(to_width);
        CAPTURE(to_height);
        cv::Mat expected;
        cv::resize(from, expected, {to_width, to_height}, 0, 0, cv::INTER_LINEAR);
        const auto got = resize_linear({pixels.data(), width, height}, to_width, to_height);
        const bool same = std::equal(got.begin(), got.end(), expected.data, expected.data + expected.total() * 3);
        CHECK(same);
      }
    }
  }
}
