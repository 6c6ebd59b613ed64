#include "gpu/ops/find_boxes.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <vector>

#include "gpu/finite.hpp"
#include "gpu/letterbox.hpp"
#include "gpu/nms.hpp"
#include "gpu/yolo_head.hpp"
#include "tests/gpu/on_device.hpp"

namespace millrace {
namespace {

/// A block of one thread.
struct OneThread {
  int rank = 0, size = 1;
  std::uint64_t max(std::uint64_t value) const { return value; }
};

/// One thread of a block. All threads of the block run at the same time.
struct OneOfTeam {
  static constexpr int team = 7;
  struct Shared {
    std::barrier<> barrier{team};
    std::array<std::uint64_t, team> values{};
  };
  Shared* shared;
  int rank, size = team;
  std::uint64_t max(std::uint64_t value) const {
    shared->values[static_cast<std::size_t>(rank)] = value;
    shared->barrier.arrive_and_wait();
    const std::uint64_t largest = *std::max_element(shared->values.begin(), shared->values.end());
    shared->barrier.arrive_and_wait();  // before another thread writes it again
    return largest;
  }
};

void keep_best_by_team(const HeadJob& job, int slot) {
  OneOfTeam::Shared shared;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < OneOfTeam::team; ++rank)
    threads.emplace_back([&, rank] { find_boxes_kernel::keep_best(job, slot, OneOfTeam{&shared, rank}); });
}

struct Shape {
  bool yolox;
  int slots, classes, width, height;
  int objects;
  float conf;
  double min_area;
};

int anchors_of(const Shape& s) {
  int anchors = 0;
  for (const int stride : {8, 16, 32}) anchors += (s.width / stride) * (s.height / stride);
  return anchors;
}

/// `objects` anchors get a score, in clusters for v8 so that NMS has work. The others score less than 0.01.
std::vector<float> output_of(const Shape& s, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0, 1);
  const int anchors = anchors_of(s), channels = (s.yolox ? 5 : 4) + s.classes;
  std::vector<float> output(static_cast<std::size_t>(s.slots * channels * anchors));
  for (int slot = 0; slot < s.slots; ++slot) {
    const auto at = [&](int channel, int anchor) -> float& {
      const int index =
          s.yolox ? (slot * anchors + anchor) * channels + channel : (slot * channels + channel) * anchors + anchor;
      return output[static_cast<std::size_t>(index)];
    };
    for (int a = 0; a < anchors; ++a) {
      for (int c = 4; c < channels; ++c) at(c, a) = 0.01F * uniform(random);
      at(0, a) = s.yolox ? uniform(random) * 4 - 2 : uniform(random) * static_cast<float>(s.width);
      at(1, a) = s.yolox ? uniform(random) * 4 - 2 : uniform(random) * static_cast<float>(s.height);
      at(2, a) = s.yolox ? uniform(random) * 2 : uniform(random) * 60;
      at(3, a) = s.yolox ? uniform(random) * 2 : uniform(random) * 60;
    }
    for (int i = 0; i < s.objects; ++i) {
      const auto a = static_cast<int>(uniform(random) * static_cast<float>(anchors - 1));
      if (s.yolox) at(4, a) = uniform(random);
      const auto c = static_cast<int>(uniform(random) * static_cast<float>(s.classes - 1) + 0.5F);
      at((s.yolox ? 5 : 4) + c, a) = std::round(uniform(random) * 50) / 50;  // equal scores occur
      if (!s.yolox) at(0, a) = static_cast<float>(i % 5) * 20, at(1, a) = static_cast<float>(i % 3) * 25;
    }
  }
  return output;
}

TEST_CASE("the detection kernels keep the boxes that head, NMS and clipping of the host keep") {
  unsigned seed = 0;
  for (const Shape& s : {Shape{false, 1, 1, 32, 32, 5, 0.25F, 0},
                         {false, 3, 6, 416, 416, 200, 0.25F, 0},
                         {false, 2, 80, 640, 384, 3000, 0.1F, 40},
                         {false, 2, 3, 96, 64, 0, 0.5F, 0},
                         {false, 1, 2, 64, 64, 50, 0.0F, 0},
                         {true, 2, 80, 416, 416, 300, 0.3F, 0},
                         {true, 1, 1, 64, 32, 20, 0.0F, 0}}) {
    for (const bool class_aware : {true, false}) {
      for (const int max_rows : {1, 8, 101}) {
        CAPTURE(s.yolox);
        CAPTURE(s.classes);
        CAPTURE(s.width);
        CAPTURE(class_aware);
        CAPTURE(max_rows);
        const int anchors = anchors_of(s);
        auto output = output_of(s, ++seed);
        HeadSpec head{s.yolox ? HeadLayout::yolox_raw : HeadLayout::v8, s.width, s.height, s.classes};
        InputSpec spec;
        spec.width = s.width;
        spec.height = s.height;
        spec.placement = Placement::centred;

        std::vector<LetterboxGeometry> geometry;
        for (int slot = 0; slot < s.slots; ++slot) geometry.push_back(letterbox_geometry(1000 + 300 * slot, 700, spec));
        const auto total = static_cast<std::size_t>(s.slots * anchors);
        std::vector<std::uint64_t> keys(total);
        std::vector<Box> boxes(total);
        std::vector<std::int32_t> best(total), faults(static_cast<std::size_t>(s.slots)),
            counts(2 * static_cast<std::size_t>(s.slots));
        std::vector<KeptBox> kept(static_cast<std::size_t>(s.slots * max_rows));
        HeadJob job;
        job.output = output.data();
        job.yolox = s.yolox;
        job.slots = s.slots;
        job.anchors = anchors;
        job.classes = s.classes;
        job.input_width = s.width;
        job.input_height = s.height;
        job.min_score = s.conf;
        job.iou_threshold = 0.45;
        job.min_area = s.min_area;
        job.class_aware = class_aware;
        job.max_kept = max_rows;
        job.geometry = geometry.data();
        job.keys = keys.data();
        job.boxes = boxes.data();
        job.best = best.data();
        job.faults = faults.data();
        job.summaries = counts.data();
        job.kept = kept.data();

        for (int slot = 0; slot < s.slots; ++slot) {
          const auto i = static_cast<std::size_t>(slot);
          for (int a = 0; a < anchors; ++a) REQUIRE(find_boxes_kernel::find_candidate(job, slot, a) == 0);
          const auto keys_before = keys;
          find_boxes_kernel::keep_best(job, slot, OneThread{});
          const auto kept_by_one = kept;
          const auto counts_by_one = counts;
          keys = keys_before;
          std::fill(kept.begin() + slot * max_rows, kept.begin() + (slot + 1) * max_rows,
                    KeptBox{{-1, -1, -1, -1}, -1, -1});
          std::fill_n(counts.begin() + 2 * slot, 2, -1);
          keep_best_by_team(job, slot);
          CHECK(counts == counts_by_one);
          int by_team_different = 0;
          for (std::size_t k = 0; k < static_cast<std::size_t>(counts[2 * i + 1]); ++k) {
            const KeptBox &a = kept[i * static_cast<std::size_t>(max_rows) + k],
                          &b = kept_by_one[i * static_cast<std::size_t>(max_rows) + k];
            by_team_different += static_cast<int>(a.box != b.box || a.score != b.score || a.class_id != b.class_id);
          }
          CHECK(by_team_different == 0);

          const Tensor tensor{nullptr, output.data(),
                              s.yolox ? std::vector<std::int64_t>{s.slots, anchors, 5 + s.classes}
                                      : std::vector<std::int64_t>{s.slots, 4 + s.classes, anchors}};
          const Candidates all = decode_head(tensor, slot, head, s.conf);
          Candidates some;
          for (std::size_t c = 0; c < all.boxes.size(); ++c) {
            const Box box = geometry[i].to_picture(all.boxes[c]);
            if (!(box.x1 > box.x0 && box.y1 > box.y0)) continue;
            if (static_cast<double>(box.x1 - box.x0) * static_cast<double>(box.y1 - box.y0) < s.min_area) continue;
            some.boxes.push_back(all.boxes[c]);
            some.scores.push_back(all.scores[c]);
            some.classes.push_back(all.classes[c]);
          }
          const auto order = nms_cpu(some.boxes, some.scores, some.classes, 0.45, max_rows, class_aware);
          REQUIRE(counts[2 * i + 1] == static_cast<int>(order.size()));
          int different = 0;
          for (std::size_t k = 0; k < order.size(); ++k) {
            const KeptBox& own = kept[i * static_cast<std::size_t>(max_rows) + k];
            const auto at = static_cast<std::size_t>(order[k]);
            different += static_cast<int>(own.box != geometry[i].to_picture(some.boxes[at]) ||
                                          own.score != some.scores[at] || own.class_id != some.classes[at]);
          }
          CHECK(different == 0);
        }
      }
    }
  }
}

/// v8 outputs of three classes with clusters of boxes.
std::vector<float> detector_output(int slots, int anchors, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> values(static_cast<std::size_t>(slots * 7 * anchors));
  for (int s = 0; s < slots; ++s) {
    for (int a = 0; a < anchors; ++a) {
      const auto at = [&](int channel) -> float& {
        return values[static_cast<std::size_t>((s * 7 + channel) * anchors + a)];
      };
      at(0) = 10 * std::floor(uniform(random) * 6);
      at(1) = 10 * std::floor(uniform(random) * 6);
      at(2) = 5 + 30 * uniform(random);
      at(3) = 5 + 30 * uniform(random);
      for (int c = 0; c < 3; ++c) at(4 + c) = uniform(random) < 0.3F ? uniform(random) : 0.01F;
    }
  }
  return values;
}

std::vector<FoundBoxes> found_on(Device& device, const std::vector<float>& values, int slots, int anchors,
                                 const BoxSearch& search, const std::vector<int>& rows) {
  const auto found = std::make_shared<std::vector<FoundBoxes>>(rows.size());
  InputSpec spec;
  spec.width = spec.height = 64;
  std::vector<BoxTarget> targets;
  for (std::size_t i = 0; i < rows.size(); ++i)
    targets.push_back({rows[i], letterbox_geometry(100 + 10 * rows[i], 90, spec), {found, &(*found)[i]}});
  find_boxes(device, on(device, values, {slots, 7, anchors}), search, targets);
  device.wait();
  return *found;
}

TEST_CASE("a device finds the boxes of the host, best first, and the same faults") {
  BoxSearch search;
  search.head = {HeadLayout::v8, 64, 64, 3};
  for (unsigned seed = 0; seed < 60; ++seed) {
    const int slots = 1 + static_cast<int>(seed % 40), anchors = 1 + static_cast<int>(seed * 7 % 90);
    CAPTURE(slots);
    CAPTURE(anchors);
    auto values = detector_output(slots, anchors, seed);
    search.max_boxes = seed % 3 == 0 ? 2 : 100;
    search.class_aware = seed % 2 == 0;
    search.min_area = seed % 5 == 0 ? 400 : 0;
    search.wanted = seed % 4 == 0 ? std::vector<std::uint8_t>{1, 0, 1} : std::vector<std::uint8_t>{};
    if (seed % 6 == 1) values[static_cast<std::size_t>(4 * anchors)] = std::numeric_limits<float>::quiet_NaN();
    if (seed % 6 == 2) values[0] = std::numeric_limits<float>::infinity();
    std::vector<int> rows;
    for (int row = slots - 1; row >= 0; row -= 1 + static_cast<int>(seed % 2)) rows.push_back(row);
    HostAndDevice both;
    const auto expected = found_on(both.host, values, slots, anchors, search, rows);
    const auto got = found_on(both.device, values, slots, anchors, search, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      CHECK(got[i].boxes == expected[i].boxes);
      CHECK(got[i].scores == expected[i].scores);
      CHECK(got[i].classes == expected[i].classes);
      CHECK(got[i].more == expected[i].more);
      CHECK(got[i].fault == expected[i].fault);
    }
  }
}

TEST_CASE("an output of another shape is refused at once, on host and device") {
  HostAndDevice both;
  BoxSearch search;
  search.head = {HeadLayout::v8, 64, 64, 80};
  const std::vector<float> values(7 * 4);
  for (Device* device : {&both.host, &both.device}) {
    const std::vector<BoxTarget> targets{{0, {}, std::make_shared<FoundBoxes>()}};
    CHECK_THROWS_AS(find_boxes(*device, on(*device, values, {1, 7, 4}), search, targets), std::invalid_argument);
  }
}

TEST_CASE("a search without pictures or anchors finds nothing, on host and device") {
  HostAndDevice both;
  BoxSearch search;
  search.head = {HeadLayout::v8, 64, 64, 3};
  for (Device* device : {&both.host, &both.device}) {
    const auto found = std::make_shared<FoundBoxes>();
    const auto geometry = letterbox_geometry(64, 64, {.width = 64, .height = 64});
    find_boxes(*device, device->empty({0, 7, 20}), search, {});
    find_boxes(*device, on(*device, detector_output(2, 20, 1), {2, 7, 20}), search, {});
    find_boxes(*device, device->empty({1, 7, 0}), search, std::vector<BoxTarget>{{0, geometry, found}});
    device->wait();
    CHECK(found->boxes.empty());
    CHECK(found->fault.empty());
    CHECK(!found->more);
  }
}

TEST_CASE("results that a failed batch requested are dropped, and the next batch is right") {
  HostAndDevice both;
  BoxSearch search;
  search.head = {HeadLayout::v8, 64, 64, 3};
  const auto values = detector_output(1, 20, 1);
  {
    const std::vector<BoxTarget> targets{
        {0, letterbox_geometry(64, 64, {.width = 64, .height = 64}), std::make_shared<FoundBoxes>()}};
    find_boxes(both.device, on(both.device, values, {1, 7, 20}), search, targets);
  }  // without a wait
  const auto got = found_on(both.device, values, 1, 20, search, {0});
  CHECK(got[0].boxes == found_on(both.host, values, 1, 20, search, {0})[0].boxes);
}

}  // namespace
}  // namespace millrace
