#include "gpu/yolo_head.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

#include "gpu/finite.hpp"

using namespace millrace;

namespace {

Tensor random_output(std::vector<std::int64_t> shape, unsigned seed) {
  Tensor tensor = Tensor::empty(std::move(shape));
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0, 1);
  for (float& value : tensor.host<float>()) value = uniform(random);
  return tensor;
}

struct Expected {
  double x0, y0, x1, y1, score;
  int class_id;
};

/// The formulas of the two layouts, one box at a time, in double precision.
/// Sets `margin` to the smallest distance of a score from the threshold.
std::vector<Expected> reference(const Tensor& output, int picture, const HeadSpec& spec, double threshold,
                                double& margin) {
  const bool v8 = spec.layout == HeadLayout::v8;
  const auto values = output.host<float>();
  const auto at = [&](int box, int channel) {
    const int row = v8 ? channel : box, column = v8 ? box : channel;
    return static_cast<double>(
        values[static_cast<std::size_t>((picture * output.shape[1] + row) * output.shape[2] + column)]);
  };
  std::vector<Expected> boxes;
  margin = 1;
  for (int box = 0; box < spec.boxes; ++box) {
    const double x = at(box, 0), y = at(box, 1), w = at(box, 2), h = at(box, 3);
    double best = -1;
    int best_class = -1;
    for (int c = 0; v8 && c < spec.classes; ++c) {
      if (at(box, 4 + c) > best) best = at(box, 4 + c), best_class = c;
    }
    if (!v8) best = at(box, 4), best_class = static_cast<int>(at(box, 5));
    margin = std::min(margin, std::abs(best - threshold));
    if (best < threshold) continue;
    if (v8)
      boxes.push_back({x - w / 2, y - h / 2, x + w / 2, y + h / 2, best, best_class});
    else
      boxes.push_back({x, y, w, h, best, best_class});
  }
  return boxes;
}

Tensor random_head(const HeadSpec& spec, int batch, unsigned seed) {
  if (spec.layout == HeadLayout::v8) return random_output({batch, 4 + spec.classes, spec.boxes}, seed);
  Tensor output = random_output({batch, spec.boxes, 6}, seed);
  const auto values = output.host<float>();
  for (std::size_t i = 5; i < values.size(); i += 6)
    values[i] = std::floor(values[i] * 0.999F * static_cast<float>(spec.classes));
  return output;
}

constexpr std::array layouts{HeadLayout::v8, HeadLayout::end_to_end};

}  // namespace

TEST_CASE("decoded boxes equal the formulas, for both layouts, each picture of a batch, and one class") {
  unsigned seed = 0;
  for (const HeadLayout layout : layouts) {
    for (const int classes : {1, 3, 80}) {
      for (const int boxes : {1, 37, 300}) {
        for (const int batch : {1, 3}) {
          for (const float threshold : {0.0F, 0.3F, 0.77F, 2.0F}) {
            const HeadSpec spec{layout, boxes, classes};
            const Tensor output = random_head(spec, batch, ++seed);
            for (int picture = 0; picture < batch; ++picture) {
              double margin = 0;
              const auto expected = reference(output, picture, spec, static_cast<double>(threshold), margin);
              const Candidates got = decode_head(output, picture, spec, threshold);
              if (margin < 1e-7) continue;  // float and double may decide differently
              REQUIRE(got.boxes.size() == expected.size());
              REQUIRE(got.scores.size() == expected.size());
              double worst = 0;
              int wrong_classes = 0;
              for (std::size_t i = 0; i < expected.size(); ++i) {
                worst = std::max(
                    {worst, std::abs(got.boxes[i].x0 - expected[i].x0), std::abs(got.boxes[i].y0 - expected[i].y0),
                     std::abs(got.boxes[i].x1 - expected[i].x1), std::abs(got.boxes[i].y1 - expected[i].y1),
                     100 * std::abs(got.scores[i] - expected[i].score)});
                wrong_classes += got.classes[i] == expected[i].class_id ? 0 : 1;
              }
              CHECK(worst < 1e-6);
              CHECK(wrong_classes == 0);
            }
          }
        }
      }
    }
  }
}

TEST_CASE("of classes with equal scores the lowest index wins, and a score equal to the threshold counts") {
  const HeadSpec spec{HeadLayout::v8, 1, 4};
  Tensor output = random_output({1, 8, 1}, 1);
  auto values = output.host<float>();
  values[4] = 0.25F;
  values[5] = values[7] = 0.5F;
  values[6] = 0.125F;
  const Candidates got = decode_head(output, 0, spec, 0.5F);
  CHECK(got.classes == std::vector<int>{1});
  CHECK(got.scores == std::vector<float>{0.5F});
  CHECK(decode_head(output, 0, spec, 0.51F).boxes.empty());
}

TEST_CASE("NaN and infinity fail only the picture that has them") {
  for (const HeadLayout layout : layouts) {
    const HeadSpec spec{layout, 25, 2};
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      for (const std::size_t position : {0U, 5U, 80U, 146U}) {
        Tensor output = random_head(spec, 2, 1);
        output.host<float>()[position] = bad;
        CHECK_THROWS_AS(decode_head(output, 0, spec, 0.9F), NonFinite);
        CHECK_NOTHROW(decode_head(output, 1, spec, 0.9F));
      }
    }
    Tensor output = random_head(spec, 1, 1);
    auto values = output.host<float>();
    values[0] = values[layout == HeadLayout::v8 ? 25 : 1] = 3e38F;  // their sum is infinite
    CHECK_THROWS_AS(decode_head(output, 0, spec, 0.0F), NonFinite);
  }
}

TEST_CASE("a class number that the package does not have fails its picture, if the score counts") {
  const HeadSpec spec{HeadLayout::end_to_end, 3, 2};
  for (const float class_id : {-1.0F, 0.5F, 2.0F, 80.0F, 1e30F, -1e30F}) {
    Tensor output = random_head(spec, 2, 1);
    auto values = output.host<float>();
    values[10] = 0.5F;  // of the second row
    values[11] = class_id;
    CHECK_THROWS_AS(decode_head(output, 0, spec, 0.5F), UnknownClass);
    CHECK_NOTHROW(decode_head(output, 0, spec, 0.51F));
    CHECK_NOTHROW(decode_head(output, 1, spec, 0.0F));
  }
}

TEST_CASE("a tensor that does not fit the layout is refused") {
  const HeadSpec v8{HeadLayout::v8, 8400, 80}, final{HeadLayout::end_to_end, 300, 80};
  const auto refused = [](std::vector<std::int64_t> shape, const HeadSpec& spec) {
    CHECK_THROWS_AS(decode_head(random_output(std::move(shape), 1), 0, spec, 0.5F), std::invalid_argument);
  };
  CHECK_NOTHROW(decode_head(random_output({1, 84, 8400}, 1), 0, v8, 2.0F));
  refused({1, 84, 8399}, v8);
  refused({1, 85, 8400}, v8);
  refused({1, 8400, 84}, v8);
  refused({84, 8400}, v8);
  CHECK_NOTHROW(decode_head(random_output({1, 300, 6}, 1), 0, final, 2.0F));
  refused({1, 300, 7}, final);
  refused({1, 299, 6}, final);
  refused({1, 6, 300}, final);
  refused({1, 84, 8400}, final);
  for (const int picture : {1, -1})
    CHECK_THROWS_AS(decode_head(random_output({1, 300, 6}, 1), picture, final, 0.5F), std::invalid_argument);
  CHECK_THROWS_AS(decode_head(Tensor::empty({1, 84, 8400}, DType::f16), 0, v8, 0.5F), std::invalid_argument);
  CHECK(decode_head(random_output({1, 84, 0}, 1), 0, {HeadLayout::v8, 0, 80}, 0.5F).boxes.empty());
}
