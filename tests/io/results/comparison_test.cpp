#include "io/results/comparison.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "io/results/output_contents.hpp"
#include "io/results/rle.hpp"
#include "io/results/segments.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/io/results/segment_line.hpp"

namespace millrace {
namespace {

constexpr int width = 12, height = 10;

/// An object whose mask is its box, which has whole pixels.
Object object_at(int x, int y, int w, int h, int class_id = 0) {
  Object object;
  object.x = static_cast<float>(x);
  object.y = static_cast<float>(y);
  object.width = static_cast<float>(w);
  object.height = static_cast<float>(h);
  object.class_id = class_id;
  object.score = 0.5F;
  std::vector<std::uint8_t> raster(std::size_t{width} * height);
  for (int row = y; row < y + h; ++row) {
    for (int column = x; column < x + w; ++column) raster[static_cast<std::size_t>(row * width + column)] = 1;
  }
  object.rle_counts = rle_encode(raster, width, height);
  object.area = std::int64_t{w} * h;
  return object;
}

FrameRecord frame_of(const std::string& path, std::vector<Object> objects = {}) {
  FrameRecord frame;
  frame.path = path;
  frame.width = width;
  frame.height = height;
  frame.view = "front";
  frame.objects = std::move(objects);
  return frame;
}

FrameRecord failed(const std::string& path) {
  FrameRecord frame = frame_of(path);
  frame.failed = true;
  frame.reason = Reason::truncated;
  return frame;
}

/// An output folder with these pictures, two to a segment.
std::string output_of(const TemporaryFolder& folder, const std::string& name, std::vector<FrameRecord> frames) {
  std::string out = folder.path() + "/" + name;
  make_folder(out);
  SegmentStore store(out, "plan");
  std::int64_t id = 0;
  for (std::size_t begin = 0; begin < frames.size(); begin += 2) {
    std::vector<std::int64_t> ids;
    std::vector<Line> lines;
    std::vector<int> rows;
    for (std::size_t i = begin; i < std::min(begin + 2, frames.size()); ++i) {
      frames[i].id = id++;
      rows.push_back(static_cast<int>(ids.size()));
      ids.push_back(frames[i].id);
      lines.push_back({frames[i].id, segment_line_of(frames[i]), !frames[i].failed, frames[i].reason,
                       static_cast<int>(frames[i].objects.size())});
    }
    const auto segment = static_cast<std::int64_t>(begin / 2);
    store.open_segment(segment, ids, {rows});
    store.append(segment, 0, lines);
  }
  return out;
}

TEST_CASE("the intersection of two masks equals that of their rasters") {
  std::mt19937 random(5);
  for (int trial = 0; trial < 200; ++trial) {
    const int w = 1 + static_cast<int>(random() % 9), h = 1 + static_cast<int>(random() % 9);
    std::vector<std::uint8_t> a(static_cast<std::size_t>(w * h)), b(a.size());
    const auto dense_a = random() % 5, dense_b = random() % 5;  // 0 of 4: an empty mask; 4 of 4: a full one
    std::int64_t shared = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = random() % 4 < dense_a ? 1 : 0;
      b[i] = random() % 4 < dense_b ? 1 : 0;
      shared += a[i] & b[i];
    }
    CHECK_EQ(rle_intersection(rle_encode(a, w, h), rle_encode(b, w, h)), shared);
  }
  CHECK_EQ(rle_intersection({}, {}), 0);
}

TEST_CASE("objects are paired by the highest IoU, each once") {
  // In the second picture the order is another one, and one object moved by a pixel.
  const std::vector<Object> first{object_at(0, 0, 4, 4), object_at(6, 2, 4, 4), object_at(0, 6, 3, 3)};
  const std::vector<Object> second{object_at(6, 3, 4, 4), object_at(0, 0, 4, 4)};
  const auto pairs = pair_objects(first, second, 0.5);
  REQUIRE_EQ(pairs.size(), 2);
  CHECK_EQ(pairs[0].first, 0);
  CHECK_EQ(pairs[0].second, 1);
  CHECK_EQ(pairs[0].iou, 1);
  CHECK_EQ(pairs[1].first, 1);
  CHECK_EQ(pairs[1].second, 0);
  CHECK_EQ(pairs[1].iou, doctest::Approx(12.0 / 20));
  CHECK_EQ(pairs[1].box_shift, 1);
}

TEST_CASE("pairs have the IoU of masks, not that of boxes") {
  Object half = object_at(0, 0, 4, 4);
  half.rle_counts = object_at(0, 0, 4, 3).rle_counts;  // the same box
  const std::vector<Object> first{object_at(0, 0, 4, 4)}, second{half};
  CHECK_EQ(pair_objects(first, second, 0.5).at(0).iou, doctest::Approx(0.75));
  half.rle_counts.clear();  // from a recipe without `segment`
  CHECK_EQ(pair_objects(first, std::vector<Object>{half}, 0.5).at(0).iou, 1);
}

TEST_CASE("equal boxes have the IoU 1, whatever their fractions") {
  Object box;
  box.x = 10.3F;
  box.y = 1234.56F;
  box.width = 0.7F;
  box.height = 33.33F;
  CHECK_EQ(pair_objects(std::vector<Object>{box}, std::vector<Object>{box}, 0.5).at(0).iou, 1);
  Object moved = box;
  moved.x = 10.31F;
  CHECK_LT(pair_objects(std::vector<Object>{box}, std::vector<Object>{moved}, 0.5).at(0).iou, 1);
}

TEST_CASE("two objects at one place are paired by class") {
  const std::vector<Object> first{object_at(0, 0, 4, 4, 1), object_at(0, 0, 4, 4, 2)};
  const std::vector<Object> second{object_at(0, 0, 4, 4, 2), object_at(0, 0, 4, 4, 1)};
  for (const ObjectPair& pair : pair_objects(first, second, 0.5))
    CHECK_EQ(first[pair.first].class_id, second[pair.second].class_id);
}

TEST_CASE("outputs are compared by path, whatever their order") {
  const TemporaryFolder folder;
  const auto a = output_of(folder, "a",
                           {frame_of("same", {object_at(0, 0, 4, 4)}), frame_of("moved", {object_at(6, 2, 4, 4)}),
                            frame_of("lost", {object_at(1, 1, 5, 5), object_at(8, 8, 2, 2)}), failed("broken"),
                            frame_of("only a"), failed("both")});
  const auto b = output_of(folder, "b",
                           {failed("both"), frame_of("broken"), frame_of("moved", {object_at(6, 3, 4, 4, 7)}),
                            frame_of("same", {object_at(0, 0, 4, 4)}), frame_of("lost", {object_at(1, 1, 5, 5)}),
                            frame_of("only b"), frame_of("only b too")});
  const ResultsComparison found = compare_results(a, b, 10);
  CHECK_EQ(found.pictures, 5);
  CHECK_EQ(found.pictures_only_first, 1);
  CHECK_EQ(found.pictures_only_second, 2);
  CHECK_EQ(found.failed_only_first, 1);
  CHECK_EQ(found.failed_only_second, 0);
  CHECK_EQ(found.failed_both, 1);
  CHECK_EQ(found.identical, 1);
  CHECK_EQ(found.objects_first, 4);
  CHECK_EQ(found.objects_second, 3);
  CHECK_EQ(found.pairs, 3);
  CHECK_EQ(found.other_classes, 1);
  CHECK_EQ(found.ious.count(), 3);
  CHECK_EQ(found.ious.lowest(), doctest::Approx(0.6));
  CHECK_EQ(found.ious.mean(), doctest::Approx((1 + 1 + 0.6) / 3));
  CHECK_EQ(found.largest_box_shift, 1);
  REQUIRE_EQ(found.worst.size(), 2);
  CHECK_EQ(found.worst[0].first.path, "lost");
  CHECK_EQ(found.worst[0].only_first, 1);
  CHECK_EQ(found.worst[0].lowest_iou, 0);
  CHECK_EQ(found.worst[1].second.path, "moved");
  CHECK_EQ(found.worst[1].other_classes, 1);
}

TEST_CASE("an output equals itself, also with pictures that are there twice") {
  const TemporaryFolder folder;
  const auto a = output_of(folder, "a",
                           {frame_of("twice", {object_at(0, 0, 4, 4)}), frame_of("b"),
                            frame_of("twice", {object_at(6, 2, 4, 4)}), frame_of("c"), frame_of("d")});
  const ResultsComparison found = compare_results(a, a, 10);
  CHECK_EQ(found.pictures, 5);
  CHECK_EQ(found.identical, 5);
  CHECK(found.worst.empty());
  CHECK_EQ(found.pictures_only_first + found.pictures_only_second, 0);
}

TEST_CASE("only the worst pictures are kept") {
  const TemporaryFolder folder;
  std::vector<FrameRecord> first, second;
  for (int i = 0; i < 6; ++i) {
    first.push_back(frame_of(std::to_string(i), {object_at(0, 0, 10, 10)}));
    second.push_back(frame_of(std::to_string(i), {object_at(0, 0, 10 - (i * 5) % 6, 10)}));
  }
  const ResultsComparison found = compare_results(output_of(folder, "a", first), output_of(folder, "b", second), 2);
  REQUIRE_EQ(found.worst.size(), 2);
  CHECK_EQ(found.worst[0].first.path, "1");
  CHECK_EQ(found.worst[0].lowest_iou, doctest::Approx(0.5));
  CHECK_EQ(found.worst[1].first.path, "2");
  CHECK_EQ(found.worst[1].lowest_iou, doctest::Approx(0.6));
}

TEST_CASE("quantiles of shares are right to 1/10,000") {
  Shares shares;
  CHECK_EQ(shares.quantile(0.5), 0);
  for (int i = 1; i <= 200; ++i) shares.add(i / 200.0);
  CHECK_EQ(shares.quantile(0.01), doctest::Approx(2.0 / 200).epsilon(0.02));
  CHECK_EQ(shares.quantile(0.5), doctest::Approx(0.5).epsilon(0.001));
  CHECK_EQ(shares.quantile(1), 1);
  CHECK_EQ(shares.lowest(), 1.0 / 200);
}

TEST_CASE("an output that changed is refused") {
  const TemporaryFolder folder;
  const auto a = output_of(folder, "a", {frame_of("x"), frame_of("y")});
  const auto b = output_of(folder, "b", {frame_of("x"), frame_of("y")});
  write_durably(b + "/segments", "000000.jsonl", "{\"id\": 0}\n");
  CHECK_THROWS_AS(compare_results(a, b, 3), ResultsDamaged);
}

}  // namespace
}  // namespace millrace
