#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>

#include "gpu/streams/fake_stream.hpp"
#include "gpu/streams/host_stream.hpp"
#include "stages/holes.hpp"
#include "tests/stages/semantic_regions.hpp"

namespace millrace {
namespace {

const std::vector<std::pair<int, int>> large_sizes{{50, 137}, {16, 160}, {9, 8}, {17, 16}, {140, 33}};

TEST_CASE("a file that is read in parts has the labels of the whole picture, on host and stream") {
  for (const char* overlap : {"0", "0.5", "0.75"}) {
    Batch whole = batch_of_sizes(large_sizes);
    World expected(semantic_package(3, 16));
    expected.run(whole, {{"values", {"logits"}}, {"window_batch", {"5"}}}, {{"overlap", {overlap}}});
    for (const char* rows : {"1", "5", "16"}) {
      for (const bool stream : {false, true}) {
        FolderWorld world;
        Batch batch = batch_of_sizes(large_sizes);
        std::vector<std::shared_ptr<FakeRegion>> regions;
        for (const auto& frame : batch.frames) regions.push_back(in_parts(*frame));
        Device device(stream ? std::make_unique<FakeStream>()
                             : std::unique_ptr<Stream>(std::make_unique<HostStream>()));
        world.run(batch, {{"window_batch", {rows}}}, {{"overlap", {overlap}}}, &device);
        for (std::size_t i = 0; i < large_sizes.size(); ++i) {
          REQUIRE_FALSE(batch.frames[i]->failed());
          CHECK(labels_of(*batch.frames[i]) == labels_of(*whole.frames[i]));
          CHECK(regions[i]->rows == large_sizes[i].second);  // every row once
          CHECK(std::filesystem::exists(world.unfinished(static_cast<int>(i))));
          batch.frames[i]->when_committed();
          CHECK_FALSE(std::filesystem::exists(world.unfinished(static_cast<int>(i))));
        }
        if (!stream) continue;
        // Besides slabs, a batch has one wait.
        const auto out = world.counters[slabs_out].count();
        CHECK(device.counts().uploads == world.counters[slabs_in].count());
        CHECK(device.counts().downloads == out);
        CHECK(device.counts().waits == out + 1);
      }
    }
  }
}

TEST_CASE("rows that cannot be read fail their picture, and the others keep their labels") {
  Batch whole = batch_of_sizes(large_sizes);
  World expected(semantic_package(3));
  expected.run(whole, {{"values", {"logits"}}, {"window_batch", {"4"}}});
  for (const int broken : {0, 70, 136}) {
    FolderWorld world;
    Batch batch = batch_of_sizes(large_sizes);
    for (std::size_t i = 0; i < batch.frames.size(); ++i) in_parts(*batch.frames[i], i == 0 ? broken : -1);
    world.run(batch, {{"window_batch", {"4"}}});
    const auto line = line_of(*batch.frames[0], world.context());
    CHECK(line["reason"] == "corrupt_data");
    CHECK(line["detail"] == "tile " + std::to_string(broken) + " is broken");
    for (std::size_t i = 1; i < batch.frames.size(); ++i)
      CHECK(labels_of(*batch.frames[i]) == labels_of(*whole.frames[i]));
  }
}

TEST_CASE("after a kill a large picture continues behind its finished rows, with the same labels and calls") {
  struct Killed {};
  for (const char* overlap : {"0", "0.5", "0.75"}) {
    Batch whole = batch_of_sizes(large_sizes);
    World expected(semantic_package(3));
    expected.run(whole, {{"values", {"logits"}}, {"window_batch", {"4"}}}, {{"overlap", {overlap}}});
    for (int kill_at = 1; kill_at < 60; kill_at += 7) {
      int calls = 0;
      bool killed = true;
      FolderWorld world([&](const std::vector<int>&) {
        if (killed && ++calls > kill_at) throw Killed{};
      });
      Batch first = batch_of_sizes(large_sizes);
      for (const auto& frame : first.frames) in_parts(*frame);
      try {
        world.run(first, {{"window_batch", {"4"}}}, {{"overlap", {overlap}}});
      } catch (const Killed&) {
      }
      killed = false;
      const auto calls_before = world.counters[window_calls].count();
      Batch batch = batch_of_sizes(large_sizes);
      int rows_again = 0, rows = 0;
      std::vector<std::shared_ptr<FakeRegion>> regions;
      for (const auto& frame : batch.frames) regions.push_back(in_parts(*frame));
      world.run(batch, {{"window_batch", {"4"}}}, {{"overlap", {overlap}}});
      for (std::size_t i = 0; i < large_sizes.size(); ++i) {
        CHECK(labels_of(*batch.frames[i]) == labels_of(*whole.frames[i]));
        rows_again += regions[i]->rows;
        rows += large_sizes[i].second;
      }
      const WindowProgress windows = world.counters.windows.now();
      CHECK(windows.pictures == 2 * static_cast<std::int64_t>(large_sizes.size()));
      CHECK(windows.in_work == 0);
      CHECK(windows.left == 0);
      if (kill_at > 20) {
        CHECK(rows_again < rows);
        CHECK(world.counters[window_calls].count() - calls_before < expected.counters[window_calls].count());
      }
    }
  }
}

const std::vector<Hole> some_holes{{0, 3, 0, 50}, {20, 36, 5, 21}, {20, 36, 40, 50}, {136, 137, 0, 1}};

/// The labels of a whole picture whose pixels in holes are the value that becomes 0, and 255 in the holes.
std::vector<std::uint8_t> labels_with_holes(const char* overlap) {
  Batch whole = batch_of_sizes({{50, 137}});
  const PixelBuffer& raster = whole.frames[0]->columns.get(pixels);
  for (const Hole& hole : some_holes) {
    for (int row = hole.first_row; row < hole.end_row; ++row)
      std::fill_n(raster.data.get() + 3 * (50 * row + hole.first_column), 3 * (hole.end_column - hole.first_column), 0);
  }
  World world(semantic_package(3));
  world.run(whole, {{"values", {"logits"}}, {"window_batch", {"4"}}}, {{"overlap", {overlap}}});
  std::vector<std::uint8_t> labels = labels_of(*whole.frames[0]);
  cover_holes(some_holes, 0, 50, labels);
  return labels;
}

constexpr std::int64_t pixels_in_holes = 3 * 50 + 16 * 16 + 16 * 10 + 1;

TEST_CASE("holes are zeros for the windows that touch them, and have a label of their own") {
  for (const char* overlap : {"0", "0.5"}) {
    const auto expected = labels_with_holes(overlap);
    for (const char* values : {"none", "logits"}) {
      for (const bool stream : {false, true}) {
        FolderWorld world;
        Batch batch = batch_of_sizes({{50, 137}, {16, 160}});
        in_parts(*batch.frames[0])->holes = some_holes;
        in_parts(*batch.frames[1]);
        Device device(stream ? std::make_unique<FakeStream>()
                             : std::unique_ptr<Stream>(std::make_unique<HostStream>()));
        world.run(batch, {{"window_batch", {"4"}}, {"values", {values}}}, {{"overlap", {overlap}}, {"bad", {"skip"}}},
                  &device);
        REQUIRE_FALSE(batch.frames[0]->failed());
        CHECK(labels_of(*batch.frames[0]) == expected);
        CHECK(batch.frames[0]->columns.get(hole_pixels) == pixels_in_holes);
        CHECK(batch.frames[1]->columns.find(hole_pixels) == nullptr);
        if (std::string(values) == "none") continue;
        const auto found = values_of(*batch.frames[0]);
        for (std::size_t i = 0; i < expected.size(); ++i) CHECK((found[3 * i + 1] == 0) == (expected[i] == 255));
      }
    }
  }
}

TEST_CASE("after a kill, holes in finished rows are still holes, and are counted") {
  struct Killed {};
  const auto expected = labels_with_holes("0.5");
  for (int kill_at = 1; kill_at < 25; kill_at += 2) {
    int calls = 0;
    bool killed = true;
    FolderWorld world([&](const std::vector<int>&) {
      if (killed && ++calls > kill_at) throw Killed{};
    });
    for (int attempt = 0; attempt < 2; ++attempt) {
      Batch batch = batch_of_sizes({{50, 137}});
      in_parts(*batch.frames[0])->holes = some_holes;
      const auto run = [&] { world.run(batch, {{"window_batch", {"4"}}}, {{"overlap", {"0.5"}}, {"bad", {"skip"}}}); };
      if (killed) {
        CHECK_THROWS_AS(run(), Killed);
      } else {
        run();
        CHECK(labels_of(*batch.frames[0]) == expected);
        CHECK(batch.frames[0]->columns.get(hole_pixels) == pixels_in_holes);
      }
      killed = false;
    }
  }
}

TEST_CASE("a file that ends early fails, also if broken parts are left out") {
  FolderWorld world;
  Batch batch = batch_of_sizes({{50, 137}});
  in_parts(*batch.frames[0], 120);
  world.run(batch, {}, {{"bad", {"skip"}}});
  CHECK(batch.frames[0]->failed());
}

TEST_CASE("a picture that fails leaves no file of finished rows when its line is written") {
  FolderWorld world;
  Batch batch = batch_of_sizes({{50, 137}});
  in_parts(*batch.frames[0], 120);
  world.run(batch);
  CHECK(batch.frames[0]->failed());
  CHECK(std::filesystem::exists(world.unfinished(0)));
  batch.frames[0]->when_committed();
  CHECK_FALSE(std::filesystem::exists(world.unfinished(0)));
}

TEST_CASE("finished rows of a volume in several files count only while all files are the same") {
  FolderWorld world;
  int run = 0;
  for (const auto& [state, rows] : {std::pair{"one", 137}, {"one", 0}, {"two", 137}}) {
    Batch batch = batch_of_sizes({{50, 137}});
    const auto region = in_parts(*batch.frames[0]);
    region->set_other_files(state);
    world.run(batch);
    CAPTURE(++run);
    CHECK(region->rows == rows);
  }
}

TEST_CASE("a resumed picture keeps the mark that its calls were split") {
  struct Killed {};
  int calls = 0;
  bool killed = true;
  FolderWorld world([&](const std::vector<int>& codes) {
    if (killed && ++calls > 30) throw Killed{};
    if (killed && codes.size() > 2) throw OutOfMemoryError("no memory for so many");
  });
  Batch first = batch_of_sizes({{50, 137}}), batch = batch_of_sizes({{50, 137}});
  in_parts(*first.frames[0]);
  CHECK_THROWS_AS(world.run(first, {{"window_batch", {"4"}}}), Killed);
  killed = false;
  in_parts(*batch.frames[0]);
  world.run(batch, {{"window_batch", {"4"}}});
  CHECK_FALSE(batch.frames[0]->failed());
  CHECK(batch.frames[0]->split);
}

TEST_CASE("labels hold the bytes of the gate until they are freed") {
  World world(semantic_package(3));
  Batch batch = batch_of_sizes({{20, 20}});
  const std::weak_ptr<std::uint8_t> raster = batch.frames[0]->columns.get(pixels).data;
  world.run(batch, {{"values", {"logits"}}});
  batch.frames[0]->columns.drop(pixels);
  CHECK_FALSE(raster.expired());
  batch.frames[0]->columns.drop(class_map);
  CHECK_FALSE(raster.expired());
  batch.frames[0]->columns.drop(class_values);
  CHECK(raster.expired());
}

TEST_CASE("finished rows of other windows do not count") {
  FolderWorld world;
  for (const char* overlap : {"0.5", "0.25"}) {
    Batch whole = batch_of_sizes({{50, 137}}), batch = batch_of_sizes({{50, 137}});
    World expected(semantic_package(3));
    expected.run(whole, {}, {{"overlap", {overlap}}});
    in_parts(*batch.frames[0]);
    world.run(batch, {}, {{"overlap", {overlap}}});  // the file of the first one is still there
    CHECK(labels_of(*batch.frames[0]) == labels_of(*whole.frames[0]));
  }
}

TEST_CASE("the values of a file that is read in parts are those of the whole picture") {
  Batch whole = batch_of_sizes(large_sizes), batch = batch_of_sizes(large_sizes);
  World expected(semantic_package(3));
  expected.run(whole, {{"values", {"logits"}}});
  for (const auto& frame : batch.frames) in_parts(*frame);
  FolderWorld world;
  world.run(batch, {{"values", {"logits"}}});
  for (std::size_t i = 0; i < large_sizes.size(); ++i) {
    REQUIRE_FALSE(batch.frames[i]->failed());
    CHECK(std::ranges::equal(values_of(*batch.frames[i]), values_of(*whole.frames[i])));
    CHECK(labels_of(*batch.frames[i]) == labels_of(*whole.frames[i]));
  }
}

/// A volume in memory, read slice by slice.
class FakeVolume final : public RegionSource {
 public:
  explicit FakeVolume(const Extent& size, const Directions& directions = {}) {
    info_.size = size;
    info_.directions = directions;
    info_.channels = 1;
    info_.type = DType::f32;
    info_.volume = true;
    info_.spacing_mm = {2, 1, 0.5};
    std::mt19937 random(static_cast<unsigned>(size.values()));
    for (std::int64_t i = 0; i < size.values(); ++i) voxels.push_back(static_cast<float>(random() % 1000) / 500 - 1);
  }
  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override { return 0; }
  void read(int first, int count, void* to) override {
    const auto slice = static_cast<std::size_t>(info_.size.row_values());
    std::memcpy(to, voxels.data() + static_cast<std::size_t>(first) * slice,
                static_cast<std::size_t>(count) * slice * sizeof(float));
  }
  std::vector<float> voxels;

 private:
  RegionInfo info_;
};

constexpr Extent small_roi{4, 5, 6};

Package volume_package(bool columns_first) {
  Package package = semantic_package(2);
  package.folder = "/fake-volumes";
  package.name = "fake-volumes";
  package.input.depth = small_roi.rows;
  package.input.height = small_roi.lines;
  package.input.width = small_roi.columns;
  package.input.columns_first = columns_first;
  package.channels = {{.mean = 0.5F, .std = 2.0F}};
  set_methods(package);
  return package;
}

/// Logits that depend on the voxel and its place in the window: x, y, z of the volume, in either order of axes.
std::vector<Tensor> volume_model(std::span<const Tensor> inputs, bool columns_first) {
  const Tensor& in = inputs.front();
  CHECK(in.shape == (columns_first ? std::vector<std::int64_t>{in.shape[0], 1, 6, 5, 4}
                                   : std::vector<std::int64_t>{in.shape[0], 1, 4, 5, 6}));
  std::vector<std::int64_t> shape = in.shape;
  shape[1] = 2;
  Tensor out = Tensor::empty(shape);
  const WindowOrder order = columns_first ? millrace::columns_first : rows_first;
  for (std::int64_t b = 0; b < in.shape[0]; ++b) {
    for (int k = 0; k < 2; ++k) {
      for (std::int64_t i = 0; i < small_roi.values(); ++i) {
        const Extent place = place_at(small_roi, order, i);
        out.host<float>()[static_cast<std::size_t>((b * 2 + k) * small_roi.values() + i)] =
            logit(in.row(b).host<const float>()[static_cast<std::size_t>(i)], k, place.rows + 10 * place.lines,
                  place.columns);
      }
    }
  }
  return {out};
}

TEST_CASE("blended logits of volumes are those of a slow loop, in both orders of axes") {
  for (const bool columns_first : {false, true}) {
    for (const Extent size : {Extent{9, 7, 13}, Extent{1, 1, 1}, Extent{4, 5, 6}, Extent{20, 3, 8}}) {
      FolderWorld world;
      const std::string folder = world.add_model(
          volume_package(columns_first),
          [=](std::string_view, std::span<const Tensor> inputs) { return volume_model(inputs, columns_first); }, false);
      const auto volume = std::make_shared<FakeVolume>(size);
      WindowOptions options;
      options.overlap = 0.5;
      options.roi = small_roi;
      const WindowGrid grid(size, options);
      const std::vector<float> weights = window_weights(options);
      std::vector<double> sums(static_cast<std::size_t>(2 * size.values())),
          total(static_cast<std::size_t>(size.values()));
      for (std::int64_t w = 0; w < grid.windows(); ++w) {
        for (std::int64_t i = 0; i < small_roi.values(); ++i) {
          const Extent place = place_at(small_roi, rows_first, i), start = grid.start(w);
          const int z = start.rows + place.rows - grid.before.rows, y = start.lines + place.lines - grid.before.lines,
                    x = start.columns + place.columns - grid.before.columns;
          if (z < 0 || y < 0 || x < 0 || z >= size.rows || y >= size.lines || x >= size.columns) continue;
          const auto at = static_cast<std::size_t>((z * size.lines + y) * size.columns + x);
          const auto weight = static_cast<double>(weights[static_cast<std::size_t>(i)]);
          total[at] += weight;
          for (int k = 0; k < 2; ++k)
            sums[2 * at + static_cast<std::size_t>(k)] +=
                weight * static_cast<double>(
                             logit((volume->voxels[at] - 0.5F) / 2, k, place.rows + 10 * place.lines, place.columns));
        }
      }
      for (const char* values : {"logits", "none"}) {
        auto frame = picture(0);
        frame->columns.drop(pixels);
        frame->region = std::make_shared<FakeVolume>(size);
        Batch batch({frame});
        world.run(batch, {{"model", {folder}}, {"values", {values}}, {"window_batch", {"3"}}}, {{"overlap", {"0.5"}}});
        REQUIRE_FALSE(frame->failed());
        const auto labels = labels_of(*frame);
        REQUIRE(labels.size() == total.size());
        double worst = 0;
        int wrong = 0;
        for (std::size_t at = 0; at < total.size(); ++at) {
          const double first = sums[2 * at] / total[at], second = sums[2 * at + 1] / total[at];
          wrong += static_cast<int>(std::abs(first - second) > 1e-5 && labels[at] != (second > first ? 1 : 0));
          if (std::string_view(values) == "none") continue;
          worst = std::max({worst, std::abs(static_cast<double>(values_of(*frame)[2 * at]) - first),
                            std::abs(static_cast<double>(values_of(*frame)[2 * at + 1]) - second)});
        }
        CHECK(wrong == 0);
        CHECK(worst < 1e-5);
        const auto line = line_of(*frame, world.context());
        const auto voxels = line["semantic"][0]["voxels"].get<std::int64_t>();
        CHECK(line["semantic"][0]["ml"] == doctest::Approx(static_cast<double>(voxels) * 0.001).epsilon(1e-4));
        CHECK_FALSE(line["semantic"][0].contains("rle"));
      }
    }
  }
}

// Of a file: columns, lines and slices go to the left, to the back and down; or down, to the left and to the front.
const Directions turned_once{{{-1, 0, 0}, {0, -1, 0}, {0, 0, -1}}}, turned_twice{{{0, 0, -1}, {-1, 0, 0}, {0, 1, 0}}};

std::shared_ptr<Frame> volume_frame(const Extent& size, const Directions& directions, int slot = 0, int slots = 1) {
  auto frame = picture(0, slot, slots);
  frame->columns.drop(pixels);
  frame->region = std::make_shared<FakeVolume>(size, directions);
  return frame;
}

struct TurnedWorld : FolderWorld {
  /// `before_call` is called before each call of the model.
  explicit TurnedWorld(std::function<void()> before_call = {}) {
    Package package = volume_package(true);
    package.orientation = "RAS";
    model = add_model(
        package,
        [=](std::string_view, std::span<const Tensor> inputs) {
          if (before_call) before_call();
          return volume_model(inputs, true);
        },
        false);
  }
  void run_on(Batch& batch, const char* align = "1") {
    run(batch, {{"model", {model}}, {"window_batch", {"3"}}}, {{"overlap", {"0.5"}}, {"align", {align}}});
  }
  std::string model;
};

TEST_CASE("volumes that lie in different ways have the labels of each alone") {
  const std::vector<std::pair<Extent, Directions>> volumes{
      {{9, 7, 13}, turned_once}, {{8, 9, 10}, turned_twice}, {{11, 6, 7}, turned_once}, {{5, 12, 6}, turned_twice}};
  std::vector<std::shared_ptr<Frame>> frames;
  for (const auto& [size, directions] : volumes)
    frames.push_back(volume_frame(size, directions, static_cast<int>(frames.size()), static_cast<int>(volumes.size())));
  Batch batch(frames);
  TurnedWorld world;
  world.run_on(batch);
  for (std::size_t i = 0; i < volumes.size(); ++i) {
    Batch alone({volume_frame(volumes[i].first, volumes[i].second)});
    TurnedWorld other;
    other.run_on(alone);
    CHECK(labels_of(*batch.frames[i]) == labels_of(*alone.frames[0]));
  }
}

TEST_CASE("after a kill a turned volume continues behind its finished slices, also with padding before it") {
  struct Killed {};
  const Extent size{41, 7, 13};
  for (const char* align : {"1", "4"}) {
    for (const Directions& directions : {turned_once, turned_twice}) {
      Batch whole({volume_frame(size, directions)});
      TurnedWorld expected;
      expected.run_on(whole, align);
      for (int kill_at = 2; kill_at < 20; kill_at += 5) {
        bool killed = true;
        int calls = 0;
        TurnedWorld world([&] {
          if (killed && ++calls > kill_at) throw Killed{};
        });
        Batch first({volume_frame(size, directions)});
        CHECK_THROWS_AS(world.run_on(first, align), Killed);
        killed = false;
        Batch again({volume_frame(size, directions)});
        world.run_on(again, align);
        CHECK(labels_of(*again.frames[0]) == labels_of(*whole.frames[0]));
      }
    }
  }
}

TEST_CASE("a volume for a model of pictures fails, and the other way round") {
  FolderWorld world;
  Batch batch = batch_of_sizes({{20, 20}, {20, 20}});
  batch.frames[1]->region = std::make_shared<FakeVolume>(Extent{3, 4, 5});
  world.run(batch);
  CHECK_FALSE(batch.frames[0]->failed());
  CHECK(line_of(*batch.frames[1], world.context())["detail"] == "a volume, but the windows of the model are pictures");
}

TEST_CASE("the gate counts what a picture needs besides its pixels") {
  World world(semantic_package(3));
  const Semantic stage(parse_options<Semantic::Options>("semantic", {{"model", {world.folder_}}}), world.context());
  Batch batch = batch_of_sizes({{50, 137}, {50, 137}});
  constexpr int sums = 50 * roi * 4 * 4;
  CHECK(stage.bytes(*batch.frames[0]) == sums + 50 * 137);
  const auto region = in_parts(*batch.frames[1]);
  constexpr int of_parts = sums + 50 * roi + 2 * roi * 150;
  CHECK(stage.bytes(*batch.frames[1]) == of_parts);
  region->set_file_size({1370, 1, 5000});  // its labels: a row of tiles of a label pyramid
  CHECK(stage.bytes(*batch.frames[1]) == of_parts + 5000 * 512);

  // Of a volume, slabs of slices: the sums, the labels, and the slices of two windows in float32.
  World volumes(volume_package(true));
  const Semantic of_volumes(parse_options<Semantic::Options>("semantic", {{"model", {volumes.folder_}}}),
                            volumes.context());
  const std::int64_t slab = std::int64_t{small_roi.rows} * 30 * 40;
  for (const int slices : {100, 1000}) {
    batch.frames[0]->region = std::make_shared<FakeVolume>(Extent{slices, 30, 40});
    CHECK(of_volumes.bytes(*batch.frames[0]) == slab * (2 + 1) * 4 + slab + 2 * slab * 4);
  }
}

}  // namespace
}  // namespace millrace
