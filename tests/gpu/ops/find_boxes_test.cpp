#include "gpu/ops/find_boxes.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "gpu/finite.hpp"
#include "gpu/letterbox.hpp"
#include "gpu/nms.hpp"
#include "gpu/yolo_head.hpp"
#include "tests/gpu/on_device.hpp"

namespace millrace {
namespace {

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
  HeadLayout layout;
  int slots, classes, width, height, boxes;
  int objects;
  float conf;
  double min_area;
};

std::vector<std::int64_t> output_shape(const Shape& s) {
  if (s.layout == HeadLayout::v8) return {s.slots, 4 + s.classes, s.boxes};
  return {s.slots, s.boxes, 6};
}

/// `objects` boxes get a score, in clusters for v8 so that NMS has work. The others score less than 0.01.
std::vector<float> output_of(const Shape& s, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0, 1);
  const bool v8 = s.layout == HeadLayout::v8;
  const auto shape = output_shape(s);
  const int rows = static_cast<int>(shape[1]), columns = static_cast<int>(shape[2]);
  std::vector<float> output(static_cast<std::size_t>(s.slots * rows * columns));
  const auto below = [&](int limit) { return static_cast<int>(uniform(random) * 0.999F * static_cast<float>(limit)); };
  for (int slot = 0; slot < s.slots; ++slot) {
    const auto at = [&](int channel, int box) -> float& {
      const int row = v8 ? channel : box, column = v8 ? box : channel;
      return output[static_cast<std::size_t>((slot * rows + row) * columns + column)];
    };
    for (int i = 0; i < s.boxes; ++i) {
      at(0, i) = uniform(random) * static_cast<float>(s.width);
      at(1, i) = uniform(random) * static_cast<float>(s.height);
      at(2, i) = uniform(random) * 60 + (v8 ? 0 : at(0, i));
      at(3, i) = uniform(random) * 60 + (v8 ? 0 : at(1, i));
      for (int c = 4; c < (v8 ? rows : 5); ++c) at(c, i) = 0.01F * uniform(random);
      if (!v8) at(5, i) = static_cast<float>(below(s.classes));
    }
    for (int object = 0; object < s.objects; ++object) {
      const int i = below(s.boxes);
      at(v8 ? 4 + below(s.classes) : 4, i) = std::round(uniform(random) * 50) / 50;  // equal scores occur
      if (v8) at(0, i) = static_cast<float>(object % 5) * 20, at(1, i) = static_cast<float>(object % 3) * 25;
    }
  }
  return output;
}

TEST_CASE("the detection kernels keep the boxes that head, NMS and clipping of the host keep") {
  unsigned seed = 0;
  for (const Shape& s : {Shape{HeadLayout::v8, 1, 1, 32, 32, 21, 5, 0.25F, 0},
                         {HeadLayout::v8, 3, 6, 416, 416, 3549, 200, 0.25F, 0},
                         {HeadLayout::v8, 2, 80, 640, 384, 5040, 3000, 0.1F, 40},
                         {HeadLayout::v8, 2, 3, 96, 64, 126, 0, 0.5F, 0},
                         {HeadLayout::v8, 1, 2, 64, 64, 84, 50, 0.0F, 0},
                         {HeadLayout::end_to_end, 2, 80, 416, 416, 300, 300, 0.3F, 0},
                         {HeadLayout::end_to_end, 1, 1, 64, 32, 1, 1, 0.0F, 0}}) {
    for (const bool class_aware : {true, false}) {
      for (const int max_rows : {1, 8, 101}) {
        CAPTURE(static_cast<int>(s.layout));
        CAPTURE(s.classes);
        CAPTURE(s.width);
        CAPTURE(class_aware);
        CAPTURE(max_rows);
        auto output = output_of(s, ++seed);
        const HeadSpec head{s.layout, s.boxes, s.classes};
        InputSpec spec;
        spec.width = s.width;
        spec.height = s.height;
        spec.placement = Placement::centred;

        std::vector<LetterboxGeometry> geometry;
        for (int slot = 0; slot < s.slots; ++slot) geometry.push_back(letterbox_geometry(1000 + 300 * slot, 700, spec));
        const auto total = static_cast<std::size_t>(s.slots * s.boxes);
        std::vector<std::uint64_t> keys(total);
        std::vector<Box> boxes(total);
        std::vector<std::int32_t> best(total), faults(static_cast<std::size_t>(s.slots)), found(faults.size()),
            counts(2 * static_cast<std::size_t>(s.slots));
        std::vector<KeptBox> kept(static_cast<std::size_t>(s.slots * max_rows));
        HeadJob job;
        job.output = output.data();
        job.end_to_end = s.layout == HeadLayout::end_to_end;
        job.slots = s.slots;
        job.candidates = s.boxes;
        job.classes = s.classes;
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
        job.found = found.data();
        job.summaries = counts.data();
        job.kept = kept.data();

        for (int slot = 0; slot < s.slots; ++slot) {
          const auto i = static_cast<std::size_t>(slot);
          find_boxes_kernel::find_candidates(job, slot);
          REQUIRE(faults[i] == 0);
          // The threads of a GPU find them in any order.
          auto keys_before = keys;
          const auto own_keys = keys_before.begin() + slot * s.boxes;
          std::shuffle(own_keys, own_keys + found[i], std::mt19937(seed));
          find_boxes_kernel::keep_best(job, slot, find_boxes_kernel::OneThread{});
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

          const Tensor tensor{nullptr, output.data(), output_shape(s)};
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
std::vector<float> detector_output(int slots, int boxes, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> values(static_cast<std::size_t>(slots * 7 * boxes));
  for (int s = 0; s < slots; ++s) {
    for (int i = 0; i < boxes; ++i) {
      const auto at = [&](int channel) -> float& {
        return values[static_cast<std::size_t>((s * 7 + channel) * boxes + i)];
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

/// end_to_end outputs of three classes. Scores are equal for some.
std::vector<float> final_output(int slots, int boxes, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> values;
  for (int row = 0; row < slots * boxes; ++row) {
    const float x = 60 * uniform(random), y = 60 * uniform(random);
    const float score = std::floor(uniform(random) * 20) / 20;
    // The class of a row without a score has no meaning.
    const float class_id = score < 0.25F ? -1 : std::floor(uniform(random) * 2.99F);
    for (const float value : {x, y, x + 30 * uniform(random) - 2, y + 30 * uniform(random) - 2, score, class_id})
      values.push_back(value);
  }
  return values;
}

std::vector<FoundBoxes> found_on(Device& device, const std::vector<float>& values, int slots, const BoxSearch& search,
                                 const std::vector<int>& rows) {
  const auto found = std::make_shared<std::vector<FoundBoxes>>(rows.size());
  InputSpec spec;
  spec.width = spec.height = 64;
  std::vector<BoxTarget> targets;
  for (std::size_t i = 0; i < rows.size(); ++i)
    targets.push_back({rows[i], letterbox_geometry(100 + 10 * rows[i], 90, spec), {found, &(*found)[i]}});
  const bool v8 = search.head.layout == HeadLayout::v8;
  find_boxes(device, on(device, values, {slots, v8 ? 7 : search.head.boxes, v8 ? search.head.boxes : 6}), search,
             targets);
  device.wait();
  return *found;
}

void check_equal(const std::vector<FoundBoxes>& got, const std::vector<FoundBoxes>& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    CHECK(got[i].boxes == expected[i].boxes);
    CHECK(got[i].scores == expected[i].scores);
    CHECK(got[i].classes == expected[i].classes);
    CHECK(got[i].more == expected[i].more);
    CHECK(got[i].fault == expected[i].fault);
    CHECK(got[i].unknown_class == expected[i].unknown_class);
  }
}

TEST_CASE("a device finds the boxes of the host, best first, and the same faults") {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  BoxSearch search;
  for (unsigned seed = 0; seed < 120; ++seed) {
    const int slots = 1 + static_cast<int>(seed % 40), boxes = 1 + static_cast<int>(seed * 7 % 90);
    const bool v8 = seed < 60;
    CAPTURE(v8);
    CAPTURE(slots);
    CAPTURE(boxes);
    search.head = {v8 ? HeadLayout::v8 : HeadLayout::end_to_end, boxes, 3};
    search.iou_threshold = v8 ? 0.45 : 1;
    search.max_boxes = seed % 3 == 0 ? 2 : 100;
    search.class_aware = seed % 2 == 0;
    search.min_area = seed % 5 == 0 ? 400 : 0;
    search.wanted = seed % 4 == 0 ? std::vector<std::uint8_t>{1, 0, 1} : std::vector<std::uint8_t>{};
    auto values = v8 ? detector_output(slots, boxes, seed) : final_output(slots, boxes, seed);
    if (seed % 6 == 1) values[static_cast<std::size_t>(v8 ? 4 * boxes : 4)] = nan;
    if (seed % 6 == 2) values[0] = infinity;
    std::vector<int> rows;
    for (int row = slots - 1; row >= 0; row -= 1 + static_cast<int>(seed % 2)) rows.push_back(row);
    HostAndDevice both;
    check_equal(found_on(both.device, values, slots, search, rows), found_on(both.host, values, slots, search, rows));
  }
}

TEST_CASE("boxes of a model without NMS are kept though they overlap, and an unknown class fails its picture only") {
  BoxSearch search;
  search.head = {HeadLayout::end_to_end, 2, 3};
  search.iou_threshold = 1;
  constexpr float infinity = std::numeric_limits<float>::infinity();
  // Two equal boxes of one class: one picture of the batch is right, the other has `class_id` and `side`.
  for (const auto& [class_id, score, side, fault] : {std::tuple{1.0F, 0.5F, 40.0F, ""},
                                                     {-1.0F, 0.2F, 40.0F, ""},
                                                     {-1.0F, 0.5F, 40.0F, class_not_known},
                                                     {3.0F, 0.5F, 40.0F, class_not_known},
                                                     {0.5F, 0.5F, 40.0F, class_not_known},
                                                     {1e30F, 0.5F, 40.0F, class_not_known},
                                                     {3.0F, 0.5F, 3e38F, box_not_finite},
                                                     {infinity, 0.2F, 40.0F, output_not_finite}}) {
    CAPTURE(class_id);
    CAPTURE(score);
    const std::vector<float> values{10,   10,   40,   40,   0.5F,  1,  //
                                    10,   10,   40,   40,   0.5F,  1,  //
                                    10,   10,   40,   40,   0.5F,  1,  //
                                    side, side, side, side, score, class_id};
    HostAndDevice both;
    const auto expected = found_on(both.host, values, 2, search, {0, 1});
    check_equal(found_on(both.device, values, 2, search, {0, 1}), expected);
    CHECK(expected[0].boxes.size() == 2);
    CHECK(expected[0].boxes[0] == expected[0].boxes[1]);
    CHECK(expected[1].fault == fault);
    CHECK(expected[1].unknown_class == (expected[1].fault == class_not_known));
    if (expected[1].fault.empty()) CHECK(expected[1].boxes.size() == 1);
  }
}

TEST_CASE("an output of another shape is refused at once, on host and device") {
  HostAndDevice both;
  BoxSearch search;
  search.head = {HeadLayout::v8, 4, 80};
  const std::vector<float> values(7 * 4);
  for (Device* device : {&both.host, &both.device}) {
    const std::vector<BoxTarget> targets{{0, {}, std::make_shared<FoundBoxes>()}};
    CHECK_THROWS_AS(find_boxes(*device, on(*device, values, {1, 7, 4}), search, targets), std::invalid_argument);
  }
}

TEST_CASE("a search without pictures or boxes finds nothing, on host and device") {
  HostAndDevice both;
  BoxSearch search;
  search.head = {HeadLayout::v8, 20, 3};
  for (Device* device : {&both.host, &both.device}) {
    search.head.boxes = 20;
    const auto found = std::make_shared<FoundBoxes>();
    const auto geometry = letterbox_geometry(64, 64, {.width = 64, .height = 64});
    find_boxes(*device, device->empty({0, 7, 20}), search, {});
    find_boxes(*device, on(*device, detector_output(2, 20, 1), {2, 7, 20}), search, {});
    search.head.boxes = 0;
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
  search.head = {HeadLayout::v8, 20, 3};
  const auto values = detector_output(1, 20, 1);
  {
    const std::vector<BoxTarget> targets{
        {0, letterbox_geometry(64, 64, {.width = 64, .height = 64}), std::make_shared<FoundBoxes>()}};
    find_boxes(both.device, on(both.device, values, {1, 7, 20}), search, targets);
  }  // without a wait
  const auto got = found_on(both.device, values, 1, search, {0});
  CHECK(got[0].boxes == found_on(both.host, values, 1, search, {0})[0].boxes);
}

}  // namespace
}  // namespace millrace
