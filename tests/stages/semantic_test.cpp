#include "stages/semantic.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>

#include "gpu/streams/fake_stream.hpp"
#include "gpu/streams/host_stream.hpp"
#include "stages/decode.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

constexpr int roi = 16;

Package semantic_package(int channels, int max_batch = 4, std::optional<float> threshold = {}) {
  Package package;
  package.folder = "/fake-semantic";
  package.name = "fake-semantic";
  package.task = &find_task("semantic");
  package.input.width = package.input.height = roi;
  package.input.std = {255, 255, 255};
  package.output = {{"channels", {channels}}, {"activation", {threshold ? 1 : 0}}};
  package.threshold = threshold;
  for (int k = 0; k < channels; ++k) package.classes.push_back("class " + std::to_string(k));
  package.max_batch = max_batch;
  package.fingerprint = "hash of fake-semantic";
  set_methods(package);
  return package;
}

/// Logits that depend on the pixel, its channel, and its place in the window, so that seams would show.
float logit(float value, int k, int y, int x) {
  return value * static_cast<float>(k + 1) + std::sin(static_cast<float>(3 * y + 5 * x + 7 * k));
}

/// `before` gets the first red value of each window.
FakeEngine::Function model(int channels, Before before = {}) {
  return [=](std::string_view, std::span<const Tensor> inputs) {
    const Tensor& in = inputs.front();
    const std::int64_t rows = in.shape[0], height = in.shape[2], width = in.shape[3];
    std::vector<int> codes;
    for (std::int64_t b = 0; b < rows; ++b)
      codes.push_back(static_cast<int>(std::lround(in.row(b).host<const float>()[0] * 255)));
    if (before) before(codes);
    Tensor out = Tensor::empty({rows, channels, height, width});
    float* to = out.host<float>().data();
    for (std::int64_t b = 0; b < rows; ++b) {
      const float* const red = in.row(b).host<const float>().data();
      for (int k = 0; k < channels; ++k) {
        for (std::int64_t y = 0; y < height; ++y) {
          for (std::int64_t x = 0; x < width; ++x)
            *to++ = logit(red[y * width + x], k, static_cast<int>(y), static_cast<int>(x));
        }
      }
    }
    return std::vector<Tensor>{out};
  };
}

std::shared_ptr<Frame> noise_picture(int width, int height, int slot, int slots) {
  auto frame = picture(0, slot, slots);
  frame->columns.drop(pixels);
  frame->info.width = frame->info.pixel_width = width;
  frame->info.height = frame->info.pixel_height = height;
  const auto bytes = static_cast<std::size_t>(3 * width * height);
  PixelBuffer raster{width, height, {new std::uint8_t[bytes], std::default_delete<std::uint8_t[]>()}};
  std::mt19937 random(static_cast<unsigned>(width * 1000 + height));
  for (std::size_t i = 0; i < bytes; ++i) raster.data.get()[i] = static_cast<std::uint8_t>(2 + random() % 250);
  frame->columns.set(pixels, std::move(raster));
  return frame;
}

Batch batch_of_sizes(const std::vector<std::pair<int, int>>& sizes) {
  std::vector<std::shared_ptr<Frame>> frames;
  for (const auto& [width, height] : sizes)
    frames.push_back(noise_picture(width, height, static_cast<int>(frames.size()), static_cast<int>(sizes.size())));
  return Batch(std::move(frames));
}

/// Blended logits of a picture in double precision, window by window over the whole picture.
std::vector<double> slow_values(const Frame& frame, int channels, const WindowOptions& options) {
  const PixelBuffer& raster = frame.columns.get(pixels);
  const WindowGrid grid({raster.height, 1, raster.width}, options);
  const std::vector<float> weights = window_weights(options);
  const auto values = static_cast<std::size_t>(raster.width * raster.height);
  std::vector<double> sums(values * static_cast<std::size_t>(channels)), total(values);
  for (std::int64_t w = 0; w < grid.windows(); ++w) {
    const Extent start = grid.start(w);
    for (int y = 0; y < roi; ++y) {
      for (int x = 0; x < roi; ++x) {
        const int py = start.rows + y - grid.before.rows, px = start.columns + x - grid.before.columns;
        if (py < 0 || px < 0 || py >= raster.height || px >= raster.width) continue;
        const auto at = static_cast<std::size_t>(py * raster.width + px);
        const auto weight = static_cast<double>(weights[static_cast<std::size_t>(y * roi + x)]);
        const float red = static_cast<float>(raster.data.get()[3 * at]) / 255;
        total[at] += weight;
        for (int k = 0; k < channels; ++k)
          sums[at * static_cast<std::size_t>(channels) + static_cast<std::size_t>(k)] +=
              weight * static_cast<double>(logit(red, k, y, x));
      }
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] /= total[i / static_cast<std::size_t>(channels)];
  return sums;
}

std::vector<std::uint8_t> labels_of(const Frame& frame) {
  std::vector<std::uint8_t> all;
  frame.columns.get(class_map).labels->read([&](int /*first*/, std::span<const std::uint8_t> labels) {
    all.insert(all.end(), labels.begin(), labels.end());
  });
  return all;
}

struct World : StageFixture {
  explicit World(Package package, Before before = {}) : package_(std::move(package)) {
    add_view_without_detector();
    folder_ = add_model(package_, model(package_.number("channels"), std::move(before)), false);
  }

  /// Runs the two stages without a chain, which would free the values that no sink reads.
  void run(Batch& batch, OptionValues semantic = {}, const OptionValues& tiles = {}, Device* device = nullptr) {
    semantic.emplace("model", std::vector{folder_});
    StageContext with_device = context();
    if (device != nullptr) with_device.device = device;
    const Tiles cut(parse_options<Tiles::Options>("tiles", tiles), with_device);
    for (const auto& frame : batch.frames) cut.run(*frame);
    Semantic(parse_options<Semantic::Options>("semantic", semantic), with_device).run(batch);
  }

  Package package_;
  std::string folder_;
};

std::span<const float> values_of(const Frame& frame) {
  const ClassValues& values = frame.columns.get(class_values);
  return {values.values.get(), static_cast<std::size_t>(values.width * values.height * values.channels)};
}

const std::vector<std::pair<int, int>> sizes{{50, 37}, {16, 16}, {1, 1}, {5, 90}, {17, 16}, {64, 15}};

TEST_CASE("blended logits are those of a slow loop, for pictures of all sizes in shared calls") {
  for (const int channels : {1, 3}) {
    for (const char* overlap : {"0", "0.25", "0.5", "0.75"}) {
      for (const char* weights : {"constant", "gaussian"}) {
        World world(semantic_package(channels, 5, channels == 1 ? std::optional(0.5F) : std::nullopt));
        Batch batch = batch_of_sizes(sizes);
        Tiles::Options options;
        options.overlap = std::stod(overlap);
        options.weights = weights;
        WindowOptions windows = options.windows();
        windows.roi = {roi, 1, roi};
        std::vector<std::vector<double>> expected;
        for (const auto& frame : batch.frames) expected.push_back(slow_values(*frame, channels, windows));
        world.run(batch, {{"values", {"logits"}}, {"window_batch", {"5"}}},
                  {{"overlap", {overlap}}, {"weights", {weights}}});
        for (std::size_t i = 0; i < expected.size(); ++i) {
          REQUIRE_FALSE(batch.frames[i]->failed());
          const auto values = values_of(*batch.frames[i]);
          REQUIRE(values.size() == expected[i].size());
          double worst = 0;
          for (std::size_t v = 0; v < values.size(); ++v)
            worst = std::max(worst, std::abs(static_cast<double>(values[v]) - expected[i][v]));
          CHECK(worst < 1e-5);
        }
      }
    }
  }
}

TEST_CASE("results do not depend on the other pictures of a batch, the rows of a call, or the stream") {
  const int channels = 3;
  std::vector<std::vector<float>> alone;
  std::vector<std::string> lines;
  for (const auto& size : sizes) {
    World world(semantic_package(channels));
    Batch batch = batch_of_sizes({size});
    world.run(batch, {{"values", {"probabilities"}}});
    const auto values = values_of(*batch.frames[0]);
    alone.emplace_back(values.begin(), values.end());
    lines.push_back(line_of(*batch.frames[0], world.context())["semantic"].dump());
  }
  for (const char* rows : {"1", "3", "4"}) {
    for (const bool stream : {false, true}) {
      World world(semantic_package(channels));
      Batch batch = batch_of_sizes(sizes);
      Device device(stream ? std::make_unique<FakeStream>() : std::unique_ptr<Stream>(std::make_unique<HostStream>()));
      world.run(batch, {{"values", {"probabilities"}}, {"window_batch", {rows}}}, {}, &device);
      const auto copies = stream ? static_cast<std::int64_t>(sizes.size()) : 0;
      CHECK(device.counts().uploads == copies);
      CHECK(device.counts().downloads == copies);
      CHECK(device.counts().waits == (stream ? 1 : 0));
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        REQUIRE_FALSE(batch.frames[i]->failed());
        CHECK(std::ranges::equal(values_of(*batch.frames[i]), alone[i]));
        CHECK(line_of(*batch.frames[i], world.context())["semantic"].dump() == lines[i]);
      }
    }
  }
}

TEST_CASE("labels follow the largest class, or the threshold") {
  for (const bool thresholded : {false, true}) {
    const int channels = thresholded ? 1 : 3;
    World world(semantic_package(channels, 4, thresholded ? std::optional(0.7F) : std::nullopt));
    Batch batch = batch_of_sizes({{30, 20}});
    world.run(batch, {{"values", {"probabilities"}}});
    const ClassMap& map = batch.frames[0]->columns.get(class_map);
    const auto values = values_of(*batch.frames[0]);
    const auto labels = labels_of(*batch.frames[0]);
    REQUIRE(labels.size() == 600);
    CHECK(map.names.size() == static_cast<std::size_t>(thresholded ? 2 : 3));
    int wrong = 0, ones = 0;
    for (std::size_t i = 0; i < 600; ++i) {
      const auto of_pixel = values.subspan(i * static_cast<std::size_t>(channels), static_cast<std::size_t>(channels));
      const auto best = std::ranges::max_element(of_pixel) - of_pixel.begin();
      const std::ptrdiff_t expected = thresholded ? static_cast<std::ptrdiff_t>(of_pixel[0] > 0.7F) : best;
      wrong += static_cast<int>(labels[i] != expected);
      ones += static_cast<int>(labels[i] == 1);
    }
    CHECK(wrong == 0);
    CHECK(ones > 0);
    CHECK(ones < 600);
  }
}

TEST_CASE("the line has the classes of a picture, with run lengths only if a window is as high as the picture") {
  World world(semantic_package(1, 4, 0.7F));
  Batch batch = batch_of_sizes({{40, 16}, {40, 17}});
  world.run(batch);
  for (std::size_t i = 0; i < 2; ++i) {
    const auto line = line_of(*batch.frames[i], world.context());
    const auto labels = labels_of(*batch.frames[i]);
    const auto pixels_of = [&](int label) { return std::ranges::count(labels, static_cast<std::uint8_t>(label)); };
    REQUIRE(line["semantic"].size() == 2);
    CHECK(line["semantic"][0]["name"] == "background");
    CHECK(line["semantic"][1]["name"] == "class 0");
    CHECK(line["semantic"][1]["label"] == 1);
    CHECK(line["semantic"][0]["pixels"] == pixels_of(0));
    CHECK(line["semantic"][1]["pixels"] == pixels_of(1));
    CHECK(line["semantic"][1].contains("rle") == (i == 0));
    if (i == 0) CHECK(line["semantic"][1]["rle"]["size"] == std::vector<int>{16, 40});
  }
}

TEST_CASE("every call has the same shape") {
  std::vector<std::size_t> rows;
  World world(semantic_package(2, 4), [&](const std::vector<int>& codes) { rows.push_back(codes.size()); });
  Batch batch = batch_of_sizes({{50, 37}, {1, 1}});
  world.run(batch, {{"window_batch", {"4"}}});
  CHECK(rows.size() > 2);
  CHECK(std::ranges::all_of(rows, [](std::size_t count) { return count == 4; }));
  CHECK(world.counters[window_calls].count() == static_cast<std::int64_t>(rows.size()));
  CHECK(world.counters[windows_cut].count() > 4);
}

TEST_CASE("a picture that makes its window fail, fails alone; the others keep their bytes") {
  Batch expected = batch_of_sizes({{50, 37}, {30, 40}, {20, 20}});
  World calm(semantic_package(2));
  calm.run(expected, {{"values", {"logits"}}, {"window_batch", {"4"}}});
  Batch batch = batch_of_sizes({{50, 37}, {30, 40}, {20, 20}});
  batch.frames[1]->columns.get(pixels).data.get()[0] = 1;  // only this picture's first window begins with 1
  World world(semantic_package(2), fails_on(1));
  world.run(batch, {{"values", {"logits"}}, {"window_batch", {"4"}}});
  CHECK(line_of(*batch.frames[1], world.context())["reason"] == "model_failed");
  for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) {
    REQUIRE_FALSE(batch.frames[i]->failed());
    CHECK(std::ranges::equal(values_of(*batch.frames[i]), values_of(*expected.frames[i])));
  }
}

TEST_CASE("when memory runs out, calls have fewer windows, and results stay the same") {
  Batch expected = batch_of_sizes({{50, 37}, {30, 40}});
  World calm(semantic_package(2));
  calm.run(expected, {{"values", {"logits"}}, {"window_batch", {"4"}}});
  Batch batch = batch_of_sizes({{50, 37}, {30, 40}});
  World world(semantic_package(2), holds(1));
  world.run(batch, {{"values", {"logits"}}, {"window_batch", {"4"}}});
  for (std::size_t i = 0; i < 2; ++i) {
    REQUIRE_FALSE(batch.frames[i]->failed());
    CHECK(batch.frames[i]->split);
    CHECK(std::ranges::equal(values_of(*batch.frames[i]), values_of(*expected.frames[i])));
  }
}

/// A picture in memory that is read like a large file.
class FakeRegion final : public RegionSource {
 public:
  explicit FakeRegion(const PixelBuffer& raster, int broken_row = -1) : raster_(raster), broken_(broken_row) {
    info_.size = {raster.height, 1, raster.width};
  }
  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override { return 0; }
  void read(int first, int count, void* to) override {
    CHECK(first >= end_);  // forward only, and no row twice
    end_ = first + count;
    if (first <= broken_ && broken_ < end_)
      throw PictureError(Reason::corrupt_data, "tile " + std::to_string(broken_) + " is broken");
    std::memcpy(to, raster_.data.get() + std::ptrdiff_t{3} * first * raster_.width,
                static_cast<std::size_t>(3 * count * raster_.width));
    rows += count;
  }
  int rows = 0;

 private:
  const PixelBuffer raster_;
  const int broken_;
  RegionInfo info_;
  int end_ = 0;
};

/// The frame without pixels: its file is read in parts.
std::shared_ptr<FakeRegion> in_parts(Frame& frame, int broken_row = -1) {
  auto region = std::make_shared<FakeRegion>(frame.columns.get(pixels), broken_row);
  frame.columns.drop(pixels);
  frame.region = region;
  return region;
}

/// An output folder for the files of unfinished pictures.
struct FolderWorld : World {
  explicit FolderWorld(Before before = {}) : World(semantic_package(3), std::move(before)) {
    output_folder = folder_.path();
  }
  std::string unfinished(int id) const { return folder_.path() + "/unfinished/" + std::to_string(id); }
  TemporaryFolder folder_;
};

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
      if (kill_at > 20) {
        CHECK(rows_again < rows);
        CHECK(world.counters[window_calls].count() - calls_before < expected.counters[window_calls].count());
      }
    }
  }
}

TEST_CASE("values need pictures in memory") {
  FolderWorld world;
  Batch batch = batch_of_sizes({{50, 37}, {20, 20}});
  in_parts(*batch.frames[0]);
  world.run(batch, {{"values", {"logits"}}});
  CHECK(line_of(*batch.frames[0], world.context())["reason"] == "too_large");
  CHECK_FALSE(batch.frames[1]->failed());
}

TEST_CASE("the gate counts what a picture needs besides its pixels") {
  World world(semantic_package(3));
  const Semantic stage(parse_options<Semantic::Options>("semantic", {{"model", {world.folder_}}}), world.context());
  Batch batch = batch_of_sizes({{50, 137}, {50, 137}});
  constexpr int sums = 50 * roi * 4 * 4;
  CHECK(stage.bytes(*batch.frames[0]) == sums + 50 * 137);
  in_parts(*batch.frames[1]);
  CHECK(stage.bytes(*batch.frames[1]) == sums + 50 * roi + 2 * roi * 150);
}

TEST_CASE("a value that is not finite fails its picture alone") {
  World world(semantic_package(2));
  Batch batch = batch_of_sizes({{20, 20}, {20, 20}});
  const std::string folder = world.add_model(
      [] {
        Package package = semantic_package(2);
        package.folder = "/nan";
        package.name = "nan";
        return package;
      }(),
      [](std::string_view, std::span<const Tensor> inputs) {
        Tensor out = Tensor::empty({inputs[0].shape[0], 2, roi, roi});
        for (std::int64_t b = 0; b < inputs[0].shape[0]; ++b) {
          const bool bad =
              inputs[0].row(b).host<const float>()[0] < 1.5F / 255 && inputs[0].row(b).host<const float>()[0] > 0;
          std::ranges::fill(out.row(b).host<float>(), bad ? std::numeric_limits<float>::quiet_NaN() : 1.0F);
        }
        return std::vector<Tensor>{out};
      },
      false);
  batch.frames[1]->columns.get(pixels).data.get()[0] = 1;
  world.run(batch, {{"model", {folder}}});
  CHECK_FALSE(batch.frames[0]->failed());
  CHECK(line_of(*batch.frames[1], world.context())["reason"] == "non_finite");
}

}  // namespace
}  // namespace millrace
