// Lane stages on a stream have the results of the host, with one upload a picture, two waits and one download a batch.
// A batch that needs no boxes from the detector waits once.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "gpu/device.hpp"
#include "gpu/streams/fake_stream.hpp"
#include "stages/postprocess.hpp"
#include "stages/preprocess.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

const std::vector<RecipeStage> stages{"preprocess", "detect", "segment", "postprocess"};

/// Up to five boxes for each code.
std::map<int, std::vector<Answer>> answers() {
  std::mt19937 random(1);
  std::map<int, std::vector<Answer>> all;
  for (int code = 1; code < 200; ++code) {
    for (unsigned i = 0; i < random() % 6; ++i) {
      const auto x = static_cast<float>(random() % 40), y = static_cast<float>(random() % 40);
      all[code].push_back({x, y, x + 8 + static_cast<float>(random() % 16), y + 8 + static_cast<float>(random() % 16),
                           0.3F + static_cast<float>(i) / 10, static_cast<int>(random() % 3)});
    }
  }
  return all;
}

struct Setup {
  StageFixture fixture;
  explicit Setup(int max_batch = 16, int max_boxes = 64) {
    fixture.add_view(detector_package("fake-yolo", max_batch), detector_by_code(answers()));
    fixture.set_segmenter(segmenter_package(max_batch, max_boxes), segmenter_by_code());
  }
};

/// A batch with failed pictures and pictures that have their boxes from a manifest.
Batch make_batch(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int> codes(1 + random() % 16);
  for (int& code : codes) code = static_cast<int>(random() % 200);
  Batch batch = batch_of(codes);
  for (const auto& frame : batch.frames) {
    if (random() % 5 == 0) {
      frame->fail("decode", Reason::truncated, "cut");
    } else if (random() % 4 == 0) {
      frame->item.boxes = std::vector<PromptBox>(random() % 3, PromptBox{4, 5, 20, 30, 1});
    }
  }
  return batch;
}

struct OnStream {
  std::unique_ptr<FakeStream> stream = std::make_unique<FakeStream>();
  const FakeStream* const did = stream.get();
  std::unique_ptr<Device> device = std::make_unique<Device>(std::move(stream));
  const Device* const says = device.get();
};

TEST_CASE("a stream writes the lines of the host, for all ways to pack calls") {
  const std::vector<RecipeLane::Values> ways{
      {},
      {{"segment", {{"box_batch", {"3"}}}}},
      {{"segment", {{"pack", {"no"}}}}},
      {{"segment", {{"pad", {"yes"}}, {"image_batch", {"4"}}}}},
      {{"detect", {{"exec_batch", {"2"}}, {"max_detections", {"2"}}}}},
      {{"detect", {{"exec_batch", {"7"}}, {"pad", {"yes"}}}}},
      {{"detect", {{"conf", {"0.5"}}, {"classes", {"cat", "bird"}}, {"skip_with_boxes", {"no"}}}}},
  };
  unsigned seed = 0;
  bool some_without = false;
  for (const auto& values : ways) {
    CAPTURE(&values - ways.data());
    Setup host, stream;
    OnStream fake;
    RecipeLane on_host(host.fixture, stages, values), on_device(stream.fixture, stages, values, std::move(fake.device));
    const auto detect = values.find("detect");
    const bool with_boxes = detect != values.end() && detect->second.contains("skip_with_boxes");  // "no"
    std::int64_t pictures = 0, batches = 0, detected = 0;
    for (int i = 0; i < 12; ++i) {
      Batch a = make_batch(++seed), b = make_batch(seed);
      for (const auto& frame : a.frames) pictures += frame->failed() ? 0 : 1;
      ++batches;
      const auto needs = [&](const auto& frame) { return !frame->failed() && (with_boxes || !frame->item.boxes); };
      if (std::ranges::any_of(a.frames, needs)) ++detected;
      on_host.run(a);
      on_device.run(b);
      CHECK(lines_of(b, stream.fixture.context()) == lines_of(a, host.fixture.context()));
    }
    CHECK(stream.fixture.counters[decoder_calls].count() == host.fixture.counters[decoder_calls].count());
    CHECK(fake.did->counts().uploads == pictures);
    CHECK(fake.did->counts().waits == batches + detected);
    some_without = some_without || detected < batches;
    CHECK(fake.did->counts().downloads <= batches);  // none for a batch without masks
    CHECK(fake.did->counts().downloads > 0);
    const DeviceCounts said = fake.says->counts();
    CHECK(StreamCounts{said.uploads, said.downloads, said.waits} == fake.did->counts());
    CHECK(said.overflows == 0);
  }
  CHECK(some_without);
}

TEST_CASE("a raster lives until its upload is done, and no longer") {
  Setup setup;
  RecipeLane lane(setup.fixture, stages, {}, OnStream().device);
  Batch batch = batch_of({1, 2, 3});
  std::vector<std::weak_ptr<std::uint8_t>> rasters;
  for (const auto& frame : batch.frames) rasters.emplace_back(frame->columns.get(pixels).data);
  lane.run(batch);  // the column is dropped after its last reader, `preprocess`
  for (const auto& raster : rasters) CHECK(raster.expired());
  for (const auto& frame : batch.frames) CHECK(frame->columns.find(uploaded) == nullptr);  // no other stage reads it
  const auto lines = lines_of(batch, setup.fixture.context());
  CHECK(nlohmann::json::parse(lines[0])["objects"].size() == answers().at(1).size());
}

}  // namespace
}  // namespace millrace
