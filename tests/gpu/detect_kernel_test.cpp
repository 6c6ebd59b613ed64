#include "gpu/detect_kernel.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <random>
#include <thread>
#include <vector>

#include "gpu/finite.hpp"
#include "gpu/letterbox.hpp"
#include "gpu/nms.hpp"
#include "gpu/yolo_head.hpp"

using namespace millrace;

namespace {

/// One thread in place of a block.
struct OneThread {
  int rank = 0, size = 1;
  std::uint64_t max(std::uint64_t value) const { return value; }
};

/// One of the threads of a block, all of which are there at once.
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
    shared->barrier.arrive_and_wait();  // before anybody writes it again
    return largest;
  }
};

void keep_best_by_team(const HeadJob& job, int slot) {
  OneOfTeam::Shared shared;
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < OneOfTeam::team; ++rank)
    threads.emplace_back([&, rank] { detect_kernel::keep_best(job, slot, OneOfTeam{&shared, rank}); });
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

/// Most anchors score next to nothing; `objects` of them score something, in clusters so that NMS has work.
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

}  // namespace

TEST_CASE("the detection kernels keep what head, NMS and clipping of the host keep") {
  unsigned seed = 0;
  for (const Shape& s : {Shape{false, 1, 1, 32, 32, 5, 0.25F, 0},
                         {false, 3, 6, 416, 416, 200, 0.25F, 0},
                         {false, 2, 80, 640, 384, 3000, 0.1F, 40},
                         {false, 2, 3, 96, 64, 0, 0.5F, 0},
                         {false, 1, 2, 64, 64, 50, 0.0F, 0},
                         {true, 2, 80, 416, 416, 300, 0.3F, 0},
                         {true, 1, 1, 64, 32, 20, 0.0F, 0}}) {
    for (const bool class_aware : {true, false}) {
      for (const int most : {1, 8, 101}) {
        CAPTURE(s.yolox);
        CAPTURE(s.classes);
        CAPTURE(s.width);
        CAPTURE(class_aware);
        CAPTURE(most);
        const int anchors = anchors_of(s);
        auto output = output_of(s, ++seed);
        HeadSpec head{s.yolox ? HeadLayout::yolox_raw : HeadLayout::v8, s.width, s.height, s.classes};
        InputSpec spec;
        spec.width = s.width;
        spec.height = s.height;
        spec.placement = Placement::centred;

        std::vector<SlotGeometry> geometry(static_cast<std::size_t>(s.slots));
        std::vector<LetterboxGeometry> host_geometry;
        for (int slot = 0; slot < s.slots; ++slot) {
          host_geometry.push_back(letterbox_geometry(1000 + 300 * slot, 700, spec));
          const auto& g = host_geometry.back();
          geometry[static_cast<std::size_t>(slot)] = {true,  g.picture_width, g.picture_height, g.left,
                                                      g.top, g.scale_x,       g.scale_y};
        }
        const auto total = static_cast<std::size_t>(s.slots * anchors);
        std::vector<std::uint64_t> keys(total);
        std::vector<Box> boxes(total);
        std::vector<std::int32_t> best(total), faults(static_cast<std::size_t>(s.slots)),
            counts(2 * static_cast<std::size_t>(s.slots));
        std::vector<KeptBox> kept(static_cast<std::size_t>(s.slots * most));
        HeadJob job;
        job.output = output.data();
        job.yolox = s.yolox;
        job.slots = s.slots;
        job.anchors = anchors;
        job.classes = s.classes;
        job.input_width = s.width;
        job.input_height = s.height;
        job.least_score = s.conf;
        job.iou_threshold = 0.45;
        job.least_area = s.min_area;
        job.class_aware = class_aware;
        job.most_kept = most;
        job.geometry = geometry.data();
        job.keys = keys.data();
        job.boxes = boxes.data();
        job.best = best.data();
        job.faults = faults.data();
        job.summaries = counts.data();
        job.kept = kept.data();

        for (int slot = 0; slot < s.slots; ++slot) {
          const auto i = static_cast<std::size_t>(slot);
          for (int a = 0; a < anchors; ++a) REQUIRE(detect_kernel::find_candidate(job, slot, a) == 0);
          const auto keys_before = keys;
          detect_kernel::keep_best(job, slot, OneThread{});
          const auto kept_by_one = kept;
          const auto counts_by_one = counts;
          keys = keys_before;
          std::fill(kept.begin() + slot * most, kept.begin() + (slot + 1) * most, KeptBox{{-1, -1, -1, -1}, -1, -1});
          std::fill_n(counts.begin() + 2 * slot, 2, -1);
          keep_best_by_team(job, slot);
          CHECK(counts == counts_by_one);
          int by_team_different = 0;
          for (std::size_t k = 0; k < static_cast<std::size_t>(counts[2 * i + 1]); ++k) {
            const KeptBox &a = kept[i * static_cast<std::size_t>(most) + k],
                          &b = kept_by_one[i * static_cast<std::size_t>(most) + k];
            by_team_different += static_cast<int>(a.box != b.box || a.score != b.score || a.class_id != b.class_id);
          }
          CHECK(by_team_different == 0);

          const Tensor tensor{nullptr, output.data(),
                              s.yolox ? std::vector<std::int64_t>{s.slots, anchors, 5 + s.classes}
                                      : std::vector<std::int64_t>{s.slots, 4 + s.classes, anchors}};
          const Candidates all = decode_head(tensor, slot, head, s.conf);
          Candidates some;
          for (std::size_t c = 0; c < all.boxes.size(); ++c) {
            const Box box = host_geometry[i].to_picture(all.boxes[c]);
            if (!(box.x1 > box.x0 && box.y1 > box.y0)) continue;
            if (static_cast<double>(box.x1 - box.x0) * static_cast<double>(box.y1 - box.y0) < s.min_area) continue;
            some.boxes.push_back(all.boxes[c]);
            some.scores.push_back(all.scores[c]);
            some.classes.push_back(all.classes[c]);
          }
          const auto order = nms_cpu(some.boxes, some.scores, some.classes, 0.45, most, class_aware);
          REQUIRE(counts[2 * i + 1] == static_cast<int>(order.size()));
          int different = 0;
          for (std::size_t k = 0; k < order.size(); ++k) {
            const KeptBox& own = kept[i * static_cast<std::size_t>(most) + k];
            const auto at = static_cast<std::size_t>(order[k]);
            different += static_cast<int>(own.box != host_geometry[i].to_picture(some.boxes[at]) ||
                                          own.score != some.scores[at] || own.class_id != some.classes[at]);
          }
          CHECK(different == 0);
        }
      }
    }
  }
}
