// Measures the time of one mask, from logits to COCO runs: bench_masks
//
// It compares Millrace's tracer with the way of SAM's own code: OpenCV resizes the whole raster twice.
// Then the raster is encoded.
// It uses one thread and prints medians for smooth masks like a decoder's, and for noise, which is the worst case.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>
#include <random>
#include <utility>
#include <vector>

#include "gpu/outline.hpp"
#include "io/results/rle.hpp"

using namespace millrace;

namespace {

std::vector<float> blobs(std::mt19937& random) {
  std::uniform_real_distribution<float> uniform(0, 1);
  cv::Mat logits(256, 256, CV_32F, cv::Scalar(-9));
  for (int blob = 0; blob < 3; ++blob) {
    const float x = 60 + 140 * uniform(random), y = 40 + 80 * uniform(random), radius = 12 + 40 * uniform(random);
    for (int row = 0; row < 256; ++row) {
      for (int column = 0; column < 256; ++column) {
        const float angle = std::atan2(static_cast<float>(row) - y, static_cast<float>(column) - x);
        const float distance = std::hypot(static_cast<float>(column) - x, static_cast<float>(row) - y);
        float& value = logits.at<float>(row, column);
        value = std::max(value, 12 * (1 - distance / (radius * (1 + 0.2F * std::sin(5 * angle)))));
      }
    }
  }
  return {logits.begin<float>(), logits.end<float>()};
}

std::vector<float> noise(std::mt19937& random) {
  std::normal_distribution<float> normal(0, 5);
  std::vector<float> logits(65536);
  for (float& value : logits) value = normal(random);
  return logits;
}

std::vector<std::uint32_t> by_raster(const std::vector<float>& logits, const MaskGeometry& g) {
  const cv::Mat low(g.logits_height, g.logits_width, CV_32F, const_cast<float*>(logits.data()));
  cv::Mat input, picture;
  cv::resize(low, input, {g.input_width, g.input_height}, 0, 0, cv::INTER_LINEAR);
  cv::resize(input({0, 0, g.crop_width, g.crop_height}), picture, {g.picture_width, g.picture_height}, 0, 0,
             cv::INTER_LINEAR);
  const cv::Mat mask = picture > 0;
  return rle_encode({mask.data, mask.total()}, g.picture_width, g.picture_height);
}

double median_ms(const std::vector<std::vector<float>>& masks, int rounds,
                 const std::function<std::size_t(const std::vector<float>&)>& work) {
  std::vector<double> times;
  std::size_t runs = 0;
  for (int round = -1; round < rounds; ++round) {
    for (const auto& mask : masks) {
      const auto start = std::chrono::steady_clock::now();
      runs += work(mask);
      const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
      if (round >= 0) times.push_back(time.count());
    }
  }
  if (runs == 0) std::puts("no runs");  // uses `runs`, so that the compiler keeps the work
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main() {
  cv::setNumThreads(1);
  std::mt19937 random(1);
  std::vector<std::vector<float>> smooth, rough;
  for (int i = 0; i < 10; ++i) smooth.push_back(blobs(random));
  for (int i = 0; i < 3; ++i) rough.push_back(noise(random));
  std::printf("%-12s %-8s %10s %10s %8s\n", "picture", "masks", "traced ms", "raster ms", "ratio");
  for (const auto& [width, height] : {std::pair{640, 480}, {1920, 1080}, {3840, 2160}, {8000, 6000}}) {
    const double scale = 1024.0 / std::max(width, height);
    MaskGeometry geometry;
    geometry.crop_width = static_cast<int>(width * scale + 0.5);
    geometry.crop_height = static_cast<int>(height * scale + 0.5);
    geometry.picture_width = width;
    geometry.picture_height = height;
    for (const auto* masks : {&smooth, &rough}) {
      const int rounds = width > 4000 ? 1 : 5;
      MaskOutliner outliner(geometry);
      const double outlined =
          median_ms(*masks, rounds, [&](const auto& logits) { return rle_to_string(outliner.outline(logits)).size(); });
      const double raster = median_ms(
          *masks, rounds, [&](const auto& logits) { return rle_to_string(by_raster(logits, geometry)).size(); });
      std::printf("%5dx%-6d %-8s %10.3f %10.3f %8.1f\n", width, height, masks == &smooth ? "smooth" : "noise", outlined,
                  raster, raster / outlined);
    }
  }
}
