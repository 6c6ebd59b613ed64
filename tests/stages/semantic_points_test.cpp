// Heatmaps: their maxima are the results, and no picture has labels.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "gpu/streams/fake_stream.hpp"
#include "gpu/streams/host_stream.hpp"
#include "tests/stages/semantic_regions.hpp"
#include "tests/stages/slow_points.hpp"

namespace millrace {
namespace {

const std::vector<std::pair<int, int>> sizes{{50, 137}, {16, 12}, {40, 90}, {9, 33}};

Package heatmaps() {
  Package package = semantic_package(3, 16);
  package.heatmaps = true;
  return package;
}

OptionValues options(const char* in_call) {
  return {{"window_batch", {in_call}}, {"points", {"5"}}, {"point_threshold", {"0.3"}}};
}

/// The line's value of `points`, from the values of the whole picture.
nlohmann::json expected_line(const Frame& frame) {
  const ClassValues& values = frame.columns.get(class_values);
  nlohmann::json all = nlohmann::json::array();
  for (const auto& of_channel : slow_points(values.size, values.channels, values_of(frame), 5, 0.3F)) {
    nlohmann::json entry{
        {"class", all.size()}, {"name", "class " + std::to_string(all.size())}, {"points", nlohmann::json::array()}};
    for (const Point& point : of_channel) entry["points"].push_back({point.columns, point.rows, point.value});
    all.push_back(std::move(entry));
  }
  return all;
}

void check_line(const nlohmann::json& found, const nlohmann::json& expected) {
  REQUIRE(found.size() == expected.size());
  for (std::size_t k = 0; k < found.size(); ++k) {
    CHECK(found[k]["class"] == expected[k]["class"]);
    CHECK(found[k]["name"] == expected[k]["name"]);
    const auto &points = found[k]["points"], &others = expected[k]["points"];
    REQUIRE(points.size() == others.size());
    for (std::size_t i = 0; i < points.size(); ++i) {
      for (std::size_t axis = 0; axis < 3; ++axis)
        CHECK(std::abs(points[i][axis].get<double>() - others[i][axis].get<double>()) < 6e-4);
    }
  }
}

TEST_CASE("points are the maxima of the values, whole and by slabs, on the host and on a device") {
  Batch whole = batch_of_sizes(sizes);
  World with_values(heatmaps());
  OptionValues and_values = options("5");
  and_values["values"] = {"probabilities"};
  with_values.run(whole, and_values);
  std::vector<std::string> lines;
  std::size_t points = 0;
  for (const auto& frame : whole.frames) {
    CHECK(frame->columns.find(class_map) == nullptr);
    const auto line = line_of(*frame, with_values.context())["points"];
    check_line(line, expected_line(*frame));
    lines.push_back(line.dump());
    for (const auto& of_channel : line) points += of_channel["points"].size();
  }
  CHECK(points > 20);
  for (const char* in_call : {"1", "5", "16"}) {
    for (const bool stream : {false, true}) {
      for (const bool parts : {false, true}) {
        World world(heatmaps());
        const TemporaryFolder folder;
        world.output_folder = folder.path();
        Batch batch = batch_of_sizes(sizes);
        if (parts) {
          for (const auto& frame : batch.frames) in_parts(*frame);
        }
        Device device(stream ? std::make_unique<FakeStream>()
                             : std::unique_ptr<Stream>(std::make_unique<HostStream>()));
        world.run(batch, options(in_call), {}, &device);
        for (std::size_t i = 0; i < sizes.size(); ++i) {
          REQUIRE_FALSE(batch.frames[i]->failed());
          CHECK(line_of(*batch.frames[i], world.context())["points"].dump() == lines[i]);
          CHECK(batch.frames[i]->columns.find(class_values) == nullptr);
        }
        CHECK_FALSE(std::filesystem::exists(folder.path() + "/unfinished"));
        if (!stream) continue;
        // One download for each slab, or for a picture that is not higher than a window. Besides slabs, one wait.
        const auto slabs = world.counters[slabs_out].count(), maps = world.counters[label_maps].count();
        CHECK(maps == (parts ? 0 : 1));
        CHECK(device.counts().downloads == slabs + maps);
        CHECK(device.counts().waits == slabs + 1);
      }
    }
  }
}

TEST_CASE("a hole has no points") {
  World world(heatmaps());
  Batch batch = batch_of_sizes({{50, 137}});
  in_parts(*batch.frames[0])->holes = {{0, 137, 0, 50}};
  world.run(batch, options("4"), {{"bad", {"skip"}}});
  REQUIRE_FALSE(batch.frames[0]->failed());
  const auto line = line_of(*batch.frames[0], world.context());
  CHECK(line["hole_pixels"] == 50 * 137);
  for (const auto& of_channel : line["points"]) CHECK(of_channel["points"].empty());
}

TEST_CASE("memory for a picture of heatmaps does not depend on its height") {
  World world(heatmaps());
  const StageContext context = world.context();
  const Semantic stage(parse_options<Semantic::Options>("semantic", {{"model", {world.folder_}}}), context);
  Batch batch = batch_of_sizes({{50, 1000}, {50, 2000}});
  CHECK(stage.bytes(*batch.frames[0]) == stage.bytes(*batch.frames[1]));
}

}  // namespace
}  // namespace millrace
