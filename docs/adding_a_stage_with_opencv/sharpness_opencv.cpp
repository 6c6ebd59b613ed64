// The part of stages/sharpness.cpp that needs OpenCV, in libmillrace_opencv.so.
#include <cstdint>
#include <opencv2/core/utility.hpp>
#include <opencv2/imgproc.hpp>

extern "C" double millrace_sharpness_1(const std::uint8_t* rgb, int width, int height) {
  cv::setNumThreads(0);  // OpenCV's own threads would multiply with ours
  const cv::Mat picture(height, width, CV_8UC3, const_cast<std::uint8_t*>(rgb));  // it is only read
  cv::Mat gray, edges;
  cv::cvtColor(picture, gray, cv::COLOR_RGB2GRAY);
  cv::Laplacian(gray, edges, CV_64F);
  cv::Scalar mean, deviation;
  cv::meanStdDev(edges, mean, deviation);
  return deviation[0] * deviation[0];
}
