#include "stages/semantic.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <new>

#include "gpu/streams/fake_stream.hpp"
#include "gpu/streams/host_stream.hpp"
#include "tests/stages/semantic_regions.hpp"

namespace millrace {
namespace {

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
        WindowOptions windows = options.tiling().windows;
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

TEST_CASE("every call has the same shape, and windows of all pictures share calls") {
  std::vector<std::size_t> rows;
  World world(semantic_package(2, 4), [&](const std::vector<int>& codes) { rows.push_back(codes.size()); });
  Batch batch = batch_of_sizes({{50, 37}, {1, 1}, {16, 16}, {1, 9}});
  world.run(batch, {{"window_batch", {"4"}}});
  // 4 x 3 windows, and three of small pictures.
  CHECK(world.counters[windows_cut].count() == 15);
  CHECK(rows.size() == 4);
  CHECK(std::ranges::all_of(rows, [](std::size_t count) { return count == 4; }));
  CHECK(world.counters[window_calls].count() == static_cast<std::int64_t>(rows.size()));
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

TEST_CASE("windows are counted while they are computed, and none is left after the batch") {
  std::vector<WindowProgress> seen;
  const WindowMeter* meter = nullptr;
  World world(semantic_package(2), [&](const std::vector<int>& codes) {
    seen.push_back(meter->now());
    if (std::ranges::find(codes, 1) != codes.end()) throw ModelError("no");
  });
  meter = &world.counters.windows;
  // 4 x 3 windows, 1, and 3 x 3. The last picture fails at its first window, and another one has failed before.
  Batch batch = batch_of_sizes({{50, 37}, {1, 1}, {40, 40}, {9, 9}});
  batch.frames[2]->columns.get(pixels).data.get()[0] = 1;
  batch.frames[3]->fail("decode", Reason::truncated, "it ends early");
  world.run(batch, {{"window_batch", {"4"}}});
  REQUIRE(seen.size() > 3);
  CHECK(batch.frames[2]->failed());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    CHECK(seen[i].in_work == 12 + 1 + 9);
    CHECK(seen[i].left == seen[i].in_work - seen[i].done);
    CHECK(seen[i].open == 4);
    if (i < 3) CHECK(seen[i].done == 4 * static_cast<std::int64_t>(i));
  }
  const WindowProgress after = meter->now();
  CHECK(after.pictures == 4);
  CHECK(after.done == 12 + 1);
  CHECK(after.in_work == 0);
  CHECK(after.left == 0);
  CHECK(after.open == 0);
  // A batch that runs a second time, because memory ran out, does not count its pictures twice.
  Batch again = batch_of_sizes({{50, 37}});
  again.frames[0]->retried = true;
  world.run(again);
  CHECK(meter->now().pictures == 4);
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

/// A model with the channels of the file.
Package package_of_channels(int count) {
  Package package = semantic_package(2);
  package.input.keeps_values = true;
  package.channels.assign(static_cast<std::size_t>(count), {.mean = 0, .std = 255});
  set_methods(package);
  return package;
}

TEST_CASE("a model with one channel takes grey pictures that were decoded to RGB, and refuses colours") {
  World world(package_of_channels(1)), rgb(semantic_package(2));
  Batch batch = batch_of_sizes({{40, 30}, {40, 30}, {20, 50}}), same = batch_of_sizes({{40, 30}, {40, 30}, {20, 50}});
  for (Batch* of : {&batch, &same}) {
    for (const std::size_t i : {0, 2}) {
      const PixelBuffer& raster = of->frames[i]->columns.get(pixels);
      for (int p = 0; p < raster.width * raster.height; ++p) {
        std::uint8_t* const pixel = raster.data.get() + 3 * static_cast<std::ptrdiff_t>(p);
        pixel[1] = pixel[2] = pixel[0];
      }
    }
  }
  world.run(batch, {{"values", {"logits"}}});
  rgb.run(same, {{"values", {"logits"}}});
  for (const std::size_t i : {0, 2}) CHECK(std::ranges::equal(values_of(*batch.frames[i]), values_of(*same.frames[i])));
  REQUIRE(batch.frames[1]->failed());
  CHECK(batch.frames[1]->failure->detail ==
        "a picture with colours, but the model takes one channel; convert it to grey");
}

TEST_CASE("a model with four channels refuses a picture that was decoded to RGB") {
  World world(package_of_channels(4));
  Batch batch = batch_of_sizes({{40, 30}});
  world.run(batch);
  REQUIRE(batch.frames[0]->failed());
  CHECK(batch.frames[0]->failure->detail ==
        "a picture that is read as RGB, but the model takes 4 channels; convert it to a TIFF with these channels");
}

TEST_CASE("sums that do not fit into the device are in the host's memory, with the same bytes") {
  FolderWorld whole;
  Batch expected = batch_of_sizes({{900, 40}});
  whole.run(expected);
  // The sums need 900 x 16 x 4 floats, 230,400 bytes, and the rows that are read in parts 86,400.
  for (const std::int64_t largest : {1'000'000, 200'000}) {
    FolderWorld world;
    Device device(std::make_unique<FakeStream>(0, std::make_shared<FakeMemory>(10'000'000, largest),
                                               std::make_shared<FakePinned>()));
    Batch batch = batch_of_sizes({{900, 40}});
    in_parts(*batch.frames[0]);
    world.run(batch, {}, {}, &device);
    REQUIRE_FALSE(batch.frames[0]->failed());
    CHECK(batch.frames[0]->split == (largest == 200'000));
    CHECK(labels_of(*batch.frames[0]) == labels_of(*expected.frames[0]));
    CHECK(device.counts().uploads == world.counters[slabs_in].count());
    CHECK(device.counts().downloads == world.counters[slabs_out].count());
    // With another picture in the batch, the lane first tries each alone.
    Batch both = batch_of_sizes({{900, 40}, {900, 40}});
    for (const auto& frame : both.frames) in_parts(*frame);
    if (largest == 200'000) CHECK_THROWS_AS(world.run(both, {}, {}, &device), std::bad_alloc);
  }
}

}  // namespace
}  // namespace millrace
