#include <doctest/doctest.h>

#include <atomic>
#include <thread>

#include "stages/decode.hpp"
#include "stages/encode.hpp"
#include "stages/segment.hpp"
#include "tests/io/decode/decode_inputs.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/stages/stage_fixture.hpp"

// For ThreadSanitizer: shares the same objects between threads as the program does. All threads have one `decode`, one
// `encode` and one cache, which is too small for all models. Each thread has its own lane.
namespace millrace {
namespace {

constexpr int batches = 24;

FakeEngine::Function detector_of_one(float score) {
  std::map<int, std::vector<Answer>> answers;
  for (int code = 1; code < 256; ++code)
    answers[code] = {{static_cast<float>(code % 20), 8, static_cast<float>(code % 20) + 24, 40, score, 0}};
  return detector_by_code(answers);
}

Batch decoded_batch(int index, const Decode& decode, const StageContext& context) {
  std::vector<std::shared_ptr<Frame>> frames;
  for (int slot = 0; slot < 2; ++slot) {
    Item item;
    item.id = 2 * index + slot;
    item.path = std::to_string(index) + "/" + std::to_string(slot) + ".png";
    item.view = index % 2;
    auto frame = std::make_shared<Frame>(item, PlanPosition{index, slot, 2, 0, index});
    test::Rgb picture = test::ramp(side, side);
    picture.data[0] = static_cast<std::uint8_t>(5 * index + slot + 1);
    const test::File file = test::make_png(picture);
    frame->file.size = file.size();
    frame->file.data = std::make_unique<std::uint8_t[]>(file.size());
    std::copy(file.begin(), file.end(), frame->file.data.get());
    frame->info = probe(frame->file.span(), context.source.limits[0]);
    decode.run(*frame);
    frames.push_back(std::move(frame));
  }
  return Batch(std::move(frames));
}

std::vector<std::string> lines_with(int threads) {
  const TemporaryFolder folder;
  StageFixture fixture(2, 150);
  fixture.output_folder = folder.path();
  fixture.add_view(detector_package("yolo-a"), detector_of_one(0.5F), "a");
  fixture.add_view(detector_package("yolo-b"), detector_of_one(0.75F), "b");
  fixture.set_segmenter(segmenter_package(), segmenter_by_code());
  const Decode decode({}, fixture.context());
  Encode encode(parse_options<Encode::Options>("encode", {{"format", {"png"}}}), fixture.context());
  std::vector<std::string> lines(2 * batches);
  std::atomic<int> next{0};
  {
    std::vector<std::jthread> running;
    for (int i = 0; i < threads; ++i) {
      running.emplace_back([&] {
        RecipeLane lane(fixture, {"preprocess", "detect", "segment", "postprocess"});
        for (int index = next++; index < batches; index = next++) {
          Batch batch = decoded_batch(index, decode, fixture.context());
          lane.run(batch);
          encode.run(batch);
          for (const auto& frame : batch.frames)
            lines[static_cast<std::size_t>(frame->item.id)] = frame->columns.get(segment_line);
        }
      });
    }
  }
  CHECK(fixture.counters[decoder_boxes].count() == 2 * batches);
  CHECK(fixture.counters[encoder_calls].count() == 2 * batches);
  return lines;
}

TEST_CASE("several lanes at the same time write the same lines as one lane") {
  const auto alone = lines_with(1);
  CHECK(nlohmann::json::parse(alone[2])["detector"] == "yolo-b");
  CHECK(nlohmann::json::parse(alone[0])["objects"].size() == 1);
  CHECK(lines_with(4) == alone);
}

}  // namespace
}  // namespace millrace
