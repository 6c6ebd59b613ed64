#include "gpu/yolo_head.hpp"

#include <doctest/doctest.h>

#include <algorithm>
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

/// The formulas of the two layouts, one anchor at a time, in double precision.
/// Sets `margin` to the smallest distance of a score from the threshold.
std::vector<Expected> reference(const Tensor& output, int picture, const HeadSpec& spec, double threshold,
                                double& margin) {
  const bool raw = spec.layout == HeadLayout::yolox_raw;
  const auto anchors = static_cast<int>(output.shape[raw ? 1 : 2]),
             channels = static_cast<int>(output.shape[raw ? 2 : 1]);
  const auto values = output.host<float>();
  const auto at = [&](int anchor, int channel) {
    const int row = raw ? anchor : channel, column = raw ? channel : anchor;
    return static_cast<double>(values[static_cast<std::size_t>(
        (picture * (raw ? anchors : channels) + row) * (raw ? channels : anchors) + column)]);
  };
  std::vector<Expected> boxes;
  margin = 1;
  for (int anchor = 0; anchor < anchors; ++anchor) {
    double x = at(anchor, 0), y = at(anchor, 1), w = at(anchor, 2), h = at(anchor, 3);
    if (raw) {
      int cell = anchor;
      for (const int stride : spec.strides) {
        const int across = spec.input_width / stride, down = spec.input_height / stride;
        if (cell < across * down) {
          x = (x + cell % across) * stride;
          y = (y + cell / across) * stride;
          w = std::exp(w) * stride;
          h = std::exp(h) * stride;
          break;
        }
        cell -= across * down;
      }
    }
    double best = -1;
    int best_class = -1;
    for (int c = 0; c < spec.classes; ++c) {
      const double score = raw ? at(anchor, 4) * at(anchor, 5 + c) : at(anchor, 4 + c);
      if (score > best) best = score, best_class = c;
    }
    margin = std::min(margin, std::abs(best - threshold));
    if (best >= threshold) boxes.push_back({x - w / 2, y - h / 2, x + w / 2, y + h / 2, best, best_class});
  }
  return boxes;
}

HeadSpec spec_of(HeadLayout layout, int width, int height, int classes) {
  HeadSpec spec;
  spec.layout = layout;
  spec.input_width = width;
  spec.input_height = height;
  spec.classes = classes;
  return spec;
}

}  // namespace

TEST_CASE("decoded boxes equal the formulas, for both layouts, each picture of a batch, odd sizes and one class") {
  unsigned seed = 0;
  for (const HeadLayout layout : {HeadLayout::yolox_raw, HeadLayout::v8}) {
    for (const int classes : {1, 3, 80}) {
      for (const auto& [width, height] : {std::pair{32, 32}, {96, 64}, {64, 160}}) {
        for (const int batch : {1, 3}) {
          for (const float threshold : {0.0F, 0.3F, 0.77F, 2.0F}) {
            const HeadSpec spec = spec_of(layout, width, height, classes);
            const int anchors = layout == HeadLayout::v8 ? 37 : expected_anchors(spec);
            const Tensor output = layout == HeadLayout::v8 ? random_output({batch, 4 + classes, anchors}, ++seed)
                                                           : random_output({batch, anchors, 5 + classes}, ++seed);
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
              CHECK(worst < 1e-4);
              CHECK(wrong_classes <= (layout == HeadLayout::v8 ? 0 : 1));  // products of floats may tie
            }
          }
        }
      }
    }
  }
}

TEST_CASE("of classes with equal scores the lowest index wins, and a score equal to the threshold counts") {
  for (const HeadLayout layout : {HeadLayout::yolox_raw, HeadLayout::v8}) {
    const HeadSpec spec = spec_of(layout, 8, 8, 4);
    Tensor output = layout == HeadLayout::v8 ? random_output({1, 8, 1}, 1) : random_output({1, 1, 9}, 1);
    auto values = output.host<float>();
    if (layout == HeadLayout::yolox_raw) values[4] = 1;
    const std::size_t first = layout == HeadLayout::v8 ? 4 : 5;
    values[first] = 0.25F;
    values[first + 1] = values[first + 3] = 0.5F;
    values[first + 2] = 0.125F;
    const Candidates got = decode_head(output, 0, spec, 0.5F);
    CHECK(got.classes == std::vector<int>{1});
    CHECK(got.scores == std::vector<float>{0.5F});
    CHECK(decode_head(output, 0, spec, 0.51F).boxes.empty());
  }
}

TEST_CASE("NaN and infinity fail only the picture that has them") {
  for (const HeadLayout layout : {HeadLayout::yolox_raw, HeadLayout::v8}) {
    const HeadSpec spec = spec_of(layout, 32, 32, 2);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      for (const std::size_t position : {0U, 5U, 80U, 146U}) {
        Tensor output = layout == HeadLayout::v8 ? random_output({2, 6, 25}, 1) : random_output({2, 21, 7}, 1);
        output.host<float>()[position] = bad;
        CHECK_THROWS_AS(decode_head(output, 0, spec, 0.9F), NonFinite);
        CHECK_NOTHROW(decode_head(output, 1, spec, 0.9F));
      }
    }
  }
  const HeadSpec spec = spec_of(HeadLayout::yolox_raw, 8, 8, 1);
  Tensor output = random_output({1, 1, 6}, 1);
  output.host<float>()[2] = 1000;  // its exponential is infinite
  CHECK_THROWS_AS(decode_head(output, 0, spec, 0.0F), NonFinite);
}

TEST_CASE("a tensor that does not fit the layout is refused") {
  const HeadSpec raw = spec_of(HeadLayout::yolox_raw, 416, 416, 80), v8 = spec_of(HeadLayout::v8, 640, 640, 80);
  CHECK(expected_anchors(raw) == 3549);
  CHECK_NOTHROW(decode_head(random_output({1, 3549, 85}, 1), 0, raw, 0.5F));
  CHECK_THROWS_AS(decode_head(random_output({1, 3548, 85}, 1), 0, raw, 0.5F), std::invalid_argument);
  CHECK_THROWS_AS(decode_head(random_output({1, 3549, 84}, 1), 0, raw, 0.5F), std::invalid_argument);
  CHECK_THROWS_AS(decode_head(random_output({3549, 85}, 1), 0, raw, 0.5F), std::invalid_argument);
  CHECK_THROWS_AS(decode_head(random_output({1, 3549, 85}, 1), 1, raw, 0.5F), std::invalid_argument);
  CHECK_THROWS_AS(decode_head(random_output({1, 3549, 85}, 1), -1, raw, 0.5F), std::invalid_argument);
  CHECK_THROWS_AS(decode_head(random_output({1, 8400, 84}, 1), 0, v8, 0.5F), std::invalid_argument);
  CHECK_THROWS_AS(decode_head(Tensor::empty({1, 84, 8400}, DType::f16), 0, v8, 0.5F), std::invalid_argument);
  CHECK(decode_head(random_output({1, 84, 0}, 1), 0, v8, 0.5F).boxes.empty());
}
