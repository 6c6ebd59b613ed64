#include "gpu/nms.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <stdexcept>

#include "gpu/finite.hpp"

using namespace millrace;

namespace {

struct Case {
  std::vector<Box> boxes;
  std::vector<float> scores;
  std::vector<int> classes;
};

/// Corners are whole pixels, so every IoU is a quotient of small integers.
/// Double precision then decides as float does, unless the threshold is such a quotient.
Case random_case(int count, unsigned seed, int span, int class_count, int score_levels) {
  std::mt19937 random(seed);
  const auto draw = [&](int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); };
  Case c;
  for (int i = 0; i < count; ++i) {
    const int x = draw(span), y = draw(span), width = draw(span / 4 + 2), height = draw(span / 4 + 2);
    c.boxes.push_back(
        {static_cast<float>(x), static_cast<float>(y), static_cast<float>(x + width), static_cast<float>(y + height)});
    c.scores.push_back(static_cast<float>(draw(score_levels)) / static_cast<float>(score_levels));
    c.classes.push_back(draw(class_count) - 1);
  }
  return c;
}

double iou(const Box& a, const Box& b) {
  const double w = std::max(0.0, double{std::min(a.x1, b.x1)} - double{std::max(a.x0, b.x0)});
  const double h = std::max(0.0, double{std::min(a.y1, b.y1)} - double{std::max(a.y0, b.y0)});
  const double area_a = (double{a.x1} - double{a.x0}) * (double{a.y1} - double{a.y0});
  const double area_b = (double{b.x1} - double{b.x0}) * (double{b.y1} - double{b.y0});
  return w * h / (area_a + area_b - w * h);
}

/// By definition: keeps the best remaining box and removes the boxes that overlap it, until none remains.
std::vector<int> reference(const Case& c, double threshold, int max_kept, bool class_aware) {
  std::vector<bool> gone(c.boxes.size());
  std::vector<int> kept;
  while (static_cast<int>(kept.size()) < max_kept) {
    int best = -1;
    for (std::size_t i = 0; i < c.boxes.size(); ++i) {
      if (!gone[i] && (best < 0 || c.scores[i] > c.scores[static_cast<std::size_t>(best)])) best = static_cast<int>(i);
    }
    if (best < 0) break;
    const auto b = static_cast<std::size_t>(best);
    kept.push_back(best);
    gone[b] = true;
    for (std::size_t i = 0; i < c.boxes.size(); ++i) {
      if ((!class_aware || c.classes[i] == c.classes[b]) && iou(c.boxes[i], c.boxes[b]) > threshold) gone[i] = true;
    }
  }
  return kept;
}

}  // namespace

TEST_CASE("NMS keeps the boxes that the definition keeps") {
  unsigned seed = 0;
  for (const int count : {0, 1, 2, 3, 17, 64, 65, 129, 700}) {
    for (const int class_count : {1, 3, 80}) {
      for (const double threshold : {0.0, 0.301, 0.449, 0.703, 1.0}) {
        for (const int max_kept : {0, 1, 50, 100000}) {
          const Case c = random_case(count, ++seed, 60, class_count, max_kept == 50 ? 5 : 1000);
          for (const bool class_aware : {true, false}) {
            CAPTURE(count);
            CAPTURE(class_count);
            CAPTURE(threshold);
            CAPTURE(max_kept);
            CAPTURE(class_aware);
            CHECK(nms_cpu(c.boxes, c.scores, c.classes, threshold, max_kept, class_aware) ==
                  reference(c, threshold, max_kept, class_aware));
          }
        }
      }
    }
  }
}

TEST_CASE("ties keep the lower index, an IoU equal to the threshold is no overlap, boxes without area stay") {
  const Box box{0, 0, 4, 4}, half{0, 0, 4, 2}, point{1, 1, 1, 1};
  const std::vector<int> same(3, 0);
  CHECK(nms_cpu(std::vector<Box>{box, box, box}, std::vector<float>{.5F, .5F, .5F}, same, 0.5, 10, true) ==
        std::vector<int>{0});
  CHECK(nms_cpu(std::vector<Box>{box, half}, std::vector<float>{.5F, .9F}, {}, 0.5, 10, false) ==
        std::vector<int>{1, 0});
  CHECK(nms_cpu(std::vector<Box>{box, half}, std::vector<float>{.5F, .9F}, {}, 0.499, 10, false) ==
        std::vector<int>{1});
  CHECK(nms_cpu(std::vector<Box>{point, point, point}, std::vector<float>{.1F, .2F, .3F}, same, 0.5, 10, true) ==
        std::vector<int>{2, 1, 0});
}

TEST_CASE("100,000 boxes") {
  const Case c = random_case(100000, 5, 4000, 20, 1 << 20);
  const auto kept = nms_cpu(c.boxes, c.scores, c.classes, 0.6, 300, true);
  REQUIRE(kept.size() == 300);
  CHECK(std::is_sorted(kept.begin(), kept.end(), [&](int a, int b) {
    return c.scores[static_cast<std::size_t>(a)] > c.scores[static_cast<std::size_t>(b)];
  }));
  const auto one_more = nms_cpu(c.boxes, c.scores, c.classes, 0.6, 301, true);
  CHECK(std::equal(kept.begin(), kept.end(), one_more.begin()));
}

TEST_CASE("arguments of different lengths, and scores that are NaN, are refused") {
  const std::vector<Box> boxes(2);
  CHECK_THROWS_AS(nms_cpu(boxes, std::vector<float>(1), std::vector<int>(2), 0.5, 10, true), std::invalid_argument);
  CHECK_THROWS_AS(nms_cpu(boxes, std::vector<float>(2), std::vector<int>(1), 0.5, 10, true), std::invalid_argument);
  CHECK_THROWS_AS(nms_cpu(boxes, std::vector<float>{0, std::numeric_limits<float>::quiet_NaN()}, {}, 0.5, 10, false),
                  NonFinite);
}
