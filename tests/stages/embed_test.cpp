#include "stages/embed.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <limits>

#include "base/half.hpp"
#include "gpu/streams/fake_stream.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

using Vector = std::vector<std::uint16_t>;  // float16, as bits

Vector vector_of(int code) {
  const auto c = static_cast<float>(code);
  return {to_f16(c), to_f16(1), to_f16(c / 2), to_f16(-c)};
}

// The content of the segment for a batch: its lines, and the rows of its side columns.
struct Segment {
  std::vector<nlohmann::json> lines;
  std::map<std::string, std::vector<Vector>> columns;

  // The rows of a picture, or of its objects.
  std::vector<Vector> of(std::size_t slot, const std::string& column) const {
    const nlohmann::json& line = lines.at(slot);
    std::vector<Vector> rows;
    if (line.contains(column)) rows.push_back(columns.at(column).at(line[column]));
    if (!line.contains("objects")) return rows;
    for (const auto& object : line["objects"]) {
      if (object.contains(column)) rows.push_back(columns.at(column).at(object[column]));
    }
    return rows;
  }
};

Segment segment_of(const std::vector<std::string>& lines) {
  const TemporaryFolder folder;
  ColumnWriter writer(folder.path(), 0);
  Segment segment;
  for (const auto& line : lines) segment.lines.push_back(nlohmann::json::parse(writer.take_rows(line)));
  for (const SideColumn& column : writer.commit()) {
    std::ifstream file(folder.path() + "/000000." + column.name + ".f16", std::ios::binary);
    for (std::int64_t row = 0; row < column.rows; ++row) {
      Vector& values = segment.columns[column.name].emplace_back(static_cast<std::size_t>(column.width));
      file.read(reinterpret_cast<char*>(values.data()), 2 * column.width);
    }
    REQUIRE(file);
  }
  return segment;
}

struct World : StageFixture {
  explicit World(int max_batch = 16, bool of_pictures = true, Before before = {}, Package package = embedder_package())
      : package_(std::move(package)) {
    package_.max_batch = max_batch;
    set_methods(package_);
    add_view_without_detector();
    folder_ = add_model(package_, embedder_by_code(std::move(before)), of_pictures);
  }

  Segment run(Batch& batch, OptionValues options = {}, const std::vector<RecipeStage>& stages = {"preprocess", "embed"},
              std::unique_ptr<Device> device = std::make_unique<Device>()) {
    options["model"] = {folder_};
    RecipeLane lane(*this, stages, {{"embed", options}}, std::move(device));
    lane.run(batch);
    return segment_of(lines_of(batch, context()));
  }

  Package package_;
  std::string folder_;
};

const std::vector<RecipeStage> of_objects{"preprocess", "detect", "embed"};

// A picture in which red is the column, so that the code of a crop is its left edge. Its boxes look like a manifest's.
std::shared_ptr<Frame> ramp(int slot, int slots, const std::vector<int>& lefts) {
  auto frame = picture(0, slot, slots);
  std::uint8_t* const data = frame->columns.get(pixels).data.get();
  for (int i = 0; i < side * side; ++i) data[3 * i] = static_cast<std::uint8_t>(i % side);
  frame->item.boxes.emplace();
  for (const int left : lefts) frame->item.boxes->push_back({static_cast<float>(left), 8, 16, 16, 0});
  return frame;
}

}  // namespace

TEST_CASE("each picture has the vector of its own pixels, in calls of every size") {
  for (const int max_rows : {1, 3, 16}) {
    for (const char* pad : {"no", "yes"}) {
      CAPTURE(max_rows);
      CAPTURE(pad);
      World world(max_rows);
      Batch batch = batch_of({7, 80, 3, 200, 41});
      const Segment segment = world.run(batch, {{"pad", {pad}}});
      for (std::size_t slot = 0; slot < 5; ++slot)
        CHECK(segment.of(slot, "embed") == std::vector<Vector>{vector_of(std::array{7, 80, 3, 200, 41}[slot])});
      CHECK(world.counters[embedder_calls].count() == (5 + max_rows - 1) / max_rows);
    }
  }
}

TEST_CASE("each object has the vector of its crop, for any split into calls") {
  for (const int max_rows : {1, 2, 4, 16}) {
    for (const bool on_stream : {false, true}) {
      CAPTURE(max_rows);
      CAPTURE(on_stream);
      World world(max_rows, false);
      Batch batch({ramp(0, 4, {1, 20, 33}), ramp(1, 4, {}), ramp(2, 4, {5}), ramp(3, 4, {40, 9})});
      const Segment segment =
          world.run(batch, {{"of", {"objects"}}}, of_objects,
                    on_stream ? std::make_unique<Device>(std::make_unique<FakeStream>()) : std::make_unique<Device>());
      CHECK(segment.of(0, "embed") == std::vector<Vector>{vector_of(1), vector_of(20), vector_of(33)});
      CHECK(segment.of(1, "embed").empty());
      CHECK(segment.of(2, "embed") == std::vector<Vector>{vector_of(5)});
      CHECK(segment.of(3, "embed") == std::vector<Vector>{vector_of(40), vector_of(9)});
      CHECK(world.counters[embedder_calls].count() == (6 + max_rows - 1) / max_rows);
    }
  }
}

TEST_CASE("if one object makes the call fail, only its picture fails, and the others' vectors are as without it") {
  World world(4, false, fails_on(33));
  Batch batch({ramp(0, 3, {1, 20}), ramp(1, 3, {33, 2, 7}), ramp(2, 3, {40, 9})});
  const Segment segment = world.run(batch, {{"of", {"objects"}}}, of_objects);
  CHECK(segment.lines[1]["reason"] == "model_failed");
  CHECK(batch.frames[1]->failure->stage == "embed");
  CHECK(segment.of(0, "embed") == std::vector<Vector>{vector_of(1), vector_of(20)});
  CHECK(segment.of(2, "embed") == std::vector<Vector>{vector_of(40), vector_of(9)});
  CHECK(segment.columns.at("embed").size() == 4);
}

TEST_CASE("calls that run out of memory are split in halves, and each picture is still complete") {
  World world(16, false, holds(2));
  Batch batch({ramp(0, 2, {1, 20, 33}), ramp(1, 2, {40, 9})});
  const Segment segment = world.run(batch, {{"of", {"objects"}}}, of_objects);
  CHECK(segment.of(0, "embed") == std::vector<Vector>{vector_of(1), vector_of(20), vector_of(33)});
  CHECK(segment.of(1, "embed") == std::vector<Vector>{vector_of(40), vector_of(9)});
  CHECK(segment.lines[0]["exec"] == "split");
}

TEST_CASE("vectors are divided by their length if the package says so") {
  Package package = embedder_package();
  package.output["normalised"] = {1};
  World world(16, true, {}, package);
  Batch batch = batch_of({8});
  const float length = std::sqrt(64.0F + 1 + 16 + 64);
  const Vector expected{to_f16(8 / length), to_f16(1 / length), to_f16(4 / length), to_f16(-8 / length)};
  CHECK(world.run(batch).of(0, "embed") == std::vector<Vector>{expected});
}

TEST_CASE("a number too large for float16 fails only its picture") {
  for (const float wrong : {std::numeric_limits<float>::quiet_NaN(), 65520.0F, -1e30F}) {
    CAPTURE(wrong);
    World world;
    const auto right = embedder_by_code();
    const Package package = embedder_package("wrong");
    const std::string folder = world.add_model(
        package,
        [&](std::string_view method, std::span<const Tensor> inputs) {
          auto outputs = right(method, inputs);
          outputs[0].host<float>()[6] = wrong;
          return outputs;
        },
        true);
    RecipeLane lane(world, {"preprocess", "embed"}, {{"embed", {{"model", {folder}}}}});
    Batch batch = batch_of({7, 80, 3});
    lane.run(batch);
    const Segment segment = segment_of(lines_of(batch, world.context()));
    CHECK(segment.lines[1]["reason"] == "non_finite");
    CHECK(segment.of(0, "embed") == std::vector<Vector>{vector_of(7)});
    CHECK(segment.of(2, "embed") == std::vector<Vector>{vector_of(3)});
  }
}

TEST_CASE("a stage that is in the recipe twice has two columns with its names") {
  World world;
  const std::string other = world.add_model(embedder_package("other"), embedder_by_code(), true);
  RecipeLane lane(world, {"preprocess", {"first", "embed"}, {"second", "embed"}},
                  {{"first", {{"model", {world.folder_}}}}, {"second", {{"model", {other}}}}});
  Batch batch = batch_of({7, 80});
  lane.run(batch);
  const Segment segment = segment_of(lines_of(batch, world.context()));
  CHECK(segment.of(1, "first") == std::vector<Vector>{vector_of(80)});
  CHECK(segment.of(1, "second") == std::vector<Vector>{vector_of(80)});
}

TEST_CASE("embed.of is one of two words") {
  CHECK_THROWS_WITH_AS(Embed::info(parse_options<Embed::Options>("embed", {{"of", {"faces"}}}), Embed::Own("here")),
                       "here.of is 'faces'; it must be picture or objects", UsageError);
}

}  // namespace millrace
