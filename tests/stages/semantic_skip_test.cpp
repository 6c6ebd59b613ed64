// Windows that need no model call.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>

#include "gpu/streams/fake_stream.hpp"
#include "gpu/streams/host_stream.hpp"
#include "io/sinks/image_write.hpp"
#include "stages/holes.hpp"
#include "tests/stages/semantic_regions.hpp"

namespace millrace {
namespace {

/// Pictures of noise below 252 with white places: in the middle over the whole width, at the end, everywhere, and nowhere.
Batch white_batch() {
  Batch batch = batch_of_sizes({{50, 137}, {40, 90}, {33, 20}, {20, 50}});
  const auto fill = [&](std::size_t i, int first_row, int end_row, int first_column, int end_column) {
    const PixelBuffer& raster = batch.frames[i]->columns.get(pixels);
    for (int row = first_row; row < end_row; ++row)
      std::memset(raster.data.get() + 3 * (row * raster.width + first_column), 255,
                  static_cast<std::size_t>(3 * (end_column - first_column)));
  };
  fill(0, 20, 100, 0, 50);
  fill(0, 100, 137, 0, 35);
  fill(1, 30, 90, 0, 40);
  fill(2, 0, 20, 0, 33);
  return batch;
}

const OptionValues skip{{"overlap", {"0.5"}}, {"skip_above", {"252"}}};

WindowOptions windows() {
  WindowOptions options;
  options.roi = {roi, 1, roi};
  options.overlap = 0.5;
  return options;
}

bool is_white(const PixelBuffer& raster, int y, int x) {
  const std::uint8_t* const pixel = raster.data.get() + 3 * (y * raster.width + x);
  return pixel[0] > 252 && pixel[1] > 252 && pixel[2] > 252;
}

bool is_skipped(const PixelBuffer& raster, const WindowGrid& grid, std::int64_t window) {
  const Extent start = grid.start(window);
  for (int y = 0; y < raster.height; ++y) {
    for (int x = 0; x < raster.width; ++x) {
      const int row = y + grid.before.rows - start.rows, column = x + grid.before.columns - start.columns;
      if (row >= 0 && row < roi && column >= 0 && column < roi && !is_white(raster, y, x)) return false;
    }
  }
  return true;
}

std::int64_t skipped_of(const Frame& frame) {
  const PixelBuffer& raster = frame.columns.get(pixels);
  const WindowGrid grid({raster.height, 1, raster.width}, windows());
  std::int64_t count = 0;
  for (std::int64_t window = 0; window < grid.windows(); ++window) count += is_skipped(raster, grid, window) ? 1 : 0;
  return count;
}

std::vector<std::vector<std::uint8_t>> labels_of_all(const Batch& batch) {
  std::vector<std::vector<std::uint8_t>> all;
  for (const auto& frame : batch.frames) all.push_back(labels_of(*frame));
  return all;
}

TEST_CASE("skipped windows add nothing, and places that only they touch have label 0 and values 0") {
  std::vector<std::vector<double>> expected;
  std::int64_t skipped = 0, all = 0;
  for (const auto& frame : white_batch().frames) {
    expected.push_back(
        slow_values(*frame, 3, windows(), [](const PixelBuffer& raster, const WindowGrid& grid, std::int64_t window) {
          return is_skipped(raster, grid, window);
        }));
    skipped += skipped_of(*frame);
    const PixelBuffer& raster = frame->columns.get(pixels);
    all += WindowGrid({raster.height, 1, raster.width}, windows()).windows();
  }
  CHECK(skipped > all / 4);
  for (const char* rows : {"1", "4"}) {
    for (const bool stream : {false, true}) {
      World world(semantic_package(3));
      Batch batch = white_batch();
      Device device(stream ? std::make_unique<FakeStream>() : std::unique_ptr<Stream>(std::make_unique<HostStream>()));
      world.run(batch, {{"values", {"logits"}}, {"window_batch", {rows}}}, skip, &device);
      CHECK(world.counters[windows_cut].count() == all);
      CHECK(world.counters[windows_skipped].count() == skipped);
      if (rows[0] == '1') CHECK(world.counters[window_calls].count() == all - skipped);
      CHECK(world.counters[window_calls].count() < all / (rows[0] - '0'));
      CHECK(world.counters.windows.now().left == 0);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        REQUIRE_FALSE(batch.frames[i]->failed());
        const auto values = values_of(*batch.frames[i]);
        const auto labels = labels_of(*batch.frames[i]);
        double worst = 0;
        int wrong = 0;
        for (std::size_t v = 0; v < values.size(); ++v) {
          const bool untouched = std::isnan(expected[i][v]);
          worst = std::max(worst, std::abs(static_cast<double>(values[v]) - (untouched ? 0 : expected[i][v])));
          if (untouched && labels[v / 3] != 0) ++wrong;
        }
        CHECK(worst < 1e-5);
        CHECK(wrong == 0);
      }
      CHECK(std::ranges::count_if(expected[0], [](double value) { return std::isnan(value); }) > 1000);
      CHECK(std::ranges::count(labels_of(*batch.frames[2]), 0) == 33 * 20);  // all windows are skipped
    }
  }
}

TEST_CASE("files that are read in parts skip the same windows, alone and with others") {
  World whole(semantic_package(3));
  Batch expected = white_batch();
  whole.run(expected, {{"values", {"logits"}}}, skip);
  const auto labels = labels_of_all(expected);
  for (const char* rows : {"1", "3", "16"}) {
    for (const bool stream : {false, true}) {
      for (const bool alone : {false, true}) {
        FolderWorld world;
        Device device(stream ? std::make_unique<FakeStream>()
                             : std::unique_ptr<Stream>(std::make_unique<HostStream>()));
        for (std::size_t i = 0; i < (alone ? labels.size() : 1); ++i) {
          Batch batch = white_batch();
          std::int64_t skipped = 0;
          if (alone) batch = Batch({batch.frames[i]});
          for (const auto& frame : batch.frames) skipped += skipped_of(*frame), in_parts(*frame);
          const std::int64_t before = world.counters[windows_skipped].count();
          world.run(batch, {{"window_batch", {rows}}}, skip, &device);
          CHECK(world.counters[windows_skipped].count() - before == skipped);
          for (std::size_t k = 0; k < batch.frames.size(); ++k) {
            REQUIRE_FALSE(batch.frames[k]->failed());
            CHECK(labels_of(*batch.frames[k]) == labels[alone ? i : k]);
          }
        }
        if (!stream) continue;
        // No wait is added: one for each slab of labels, and one for each batch.
        CHECK(device.counts().waits == world.counters[slabs_out].count() + (alone ? 4 : 1));
      }
    }
  }
}

TEST_CASE("after a kill the same windows are skipped") {
  struct Killed {};
  World whole(semantic_package(3));
  Batch expected = white_batch();
  whole.run(expected, {{"values", {"logits"}}}, skip);
  const auto labels = labels_of_all(expected);
  for (const char* rows : {"1", "4"}) {
    for (int kill_at = 1;; kill_at += 3) {
      int calls = 0;
      bool killed = true;
      FolderWorld world([&](const std::vector<int>&) {
        if (killed && ++calls > kill_at) throw Killed{};
      });
      const auto run = [&](Batch& batch) {
        for (const auto& frame : batch.frames) in_parts(*frame);
        world.run(batch, {{"window_batch", {rows}}}, skip);
      };
      Batch first = white_batch(), second = white_batch();
      try {
        run(first);
        break;  // fewer calls than kill_at
      } catch (const Killed&) {
      }
      killed = false;
      run(second);
      CHECK(labels_of_all(second) == labels);
    }
  }
}

TEST_CASE("rows that cannot be read fail a picture whose windows are skipped, too") {
  FolderWorld world;
  Batch batch = white_batch();
  for (std::size_t i = 0; i < batch.frames.size(); ++i) in_parts(*batch.frames[i], i == 2 ? 10 : -1);
  world.run(batch, {{"window_batch", {"4"}}}, skip);
  CHECK(batch.frames[2]->failed());
  CHECK_FALSE(batch.frames[1]->failed());
  CHECK_FALSE(batch.frames[3]->failed());
}

/// A mask of picture 0 with its first and its last line, one of picture 1 with a corner, of picture 2 with nothing.
struct Masks : TemporaryFolder {
  Masks() {
    const auto write = [&](const char* name, int width, int height, auto&& is_marked) {
      GreyPng png(width, height, 8);
      for (int y = 0; y < height; ++y) {
        std::vector<std::uint8_t> line(static_cast<std::size_t>(width));
        for (int x = 0; x < width; ++x) line[static_cast<std::size_t>(x)] = is_marked(x, y) ? 7 : 0;
        png.add_row(line.data());
      }
      const std::vector<std::uint8_t> bytes = png.finish();
      std::ofstream(path() + "/" + name + ".png")
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    };
    write("0", 5, 14, [](int x, int y) { return x == 2 && (y == 0 || y == 13); });
    write("1", 40, 90, [](int x, int y) { return x == 39 && y == 89; });
    write("2", 1, 1, [](int, int) { return false; });
    write("3", 1, 1, [](int, int) { return true; });
  }
  OptionValues options() const { return {{"overlap", {"0.5"}}, {"mask", {path()}}}; }
  Batch batch() const {
    Batch made = white_batch();
    for (std::size_t i = 0; i < made.frames.size(); ++i) made.frames[i]->item.path = std::to_string(i) + ".jpg";
    return made;
  }
};

TEST_CASE(
    "windows outside of a mask are skipped in whole pictures and in parts, and rows that none needs are not read") {
  const Masks masks;
  World whole(semantic_package(3));
  Batch expected = masks.batch();
  whole.run(expected, {{"values", {"logits"}}}, masks.options());
  const std::int64_t skipped = whole.counters[windows_skipped].count();
  CHECK(skipped > whole.counters[windows_cut].count() / 2);
  CHECK(skipped < whole.counters[windows_cut].count());
  const auto labels = labels_of_all(expected);
  CHECK(std::ranges::count(labels[2], 0) == 33 * 20);
  CHECK(std::ranges::count(labels[0], 0) < 50 * 137);
  for (const char* rows : {"1", "3", "16"}) {
    for (const bool stream : {false, true}) {
      FolderWorld world;
      Device device(stream ? std::make_unique<FakeStream>() : std::unique_ptr<Stream>(std::make_unique<HostStream>()));
      Batch batch = masks.batch();
      const auto first = in_parts(*batch.frames[0], 70), second = in_parts(*batch.frames[1]);
      second->holes = {{20, 30, 0, 40}};
      OptionValues options = masks.options();
      options["bad"] = {"skip"};
      world.run(batch, {{"window_batch", {rows}}}, options, &device);
      CHECK(world.counters[windows_skipped].count() == skipped);
      CHECK(labels_of_all(batch) == labels);
      CHECK(first->rows < 100);
      CHECK(second->rows == 16);
      CHECK(batch.frames[1]->columns.find(hole_pixels) == nullptr);
    }
  }
}

TEST_CASE("which rows are read with a mask does not depend on the windows of a call, nor on where an attempt begins") {
  struct Killed {};
  const Masks masks;
  OptionValues options = masks.options();
  options["bad"] = {"skip"};
  // Windows from rows 0 and 8 on need the model, then those from row 112 on. So rows 24 to 111 are not read.
  constexpr int needed = 24 + 137 - 112;
  for (const char* rows : {"1", "2", "7"}) {
    for (int kill_at = 0;; ++kill_at) {
      int calls = 0;
      bool killed = kill_at > 0;
      FolderWorld world([&](const std::vector<int>&) {
        if (killed && ++calls > kill_at) throw Killed{};
      });
      const auto run = [&] {
        Batch batch = masks.batch();
        batch = Batch({batch.frames[0]});
        const auto region = in_parts(*batch.frames[0]);
        region->holes = {{24, 112, 0, 50}};
        world.run(batch, {{"window_batch", {rows}}}, options);
        CHECK(batch.frames[0]->columns.find(hole_pixels) == nullptr);
        CHECK(std::ranges::count(labels_of(*batch.frames[0]), hole_label) == 0);
        return region->rows;
      };
      if (!killed) {
        CHECK(run() == needed);
        continue;
      }
      try {
        run();
        break;  // fewer calls than kill_at
      } catch (const Killed&) {
      }
      killed = false;
      CHECK(run() <= needed);
    }
  }
}

TEST_CASE("after a kill, the same windows are outside of a mask") {
  struct Killed {};
  const Masks masks;
  World whole(semantic_package(3));
  Batch expected = masks.batch();
  whole.run(expected, {}, masks.options());
  for (int kill_at = 1; kill_at < 6; ++kill_at) {
    int calls = 0;
    bool killed = true;
    FolderWorld world([&](const std::vector<int>&) {
      if (killed && ++calls > kill_at) throw Killed{};
    });
    const auto run = [&](Batch& batch) {
      for (const auto& frame : batch.frames) in_parts(*frame);
      world.run(batch, {{"window_batch", {"4"}}}, masks.options());
    };
    Batch first = masks.batch(), second = masks.batch();
    CHECK_THROWS_AS(run(first), Killed);
    killed = false;
    run(second);
    CHECK(labels_of_all(second) == labels_of_all(expected));
  }
}

}  // namespace
}  // namespace millrace
