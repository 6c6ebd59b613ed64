#include "stages/segment.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "stages/model_call.hpp"
#include "stages/postprocess.hpp"
#include "stages/stage_entry.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

// Three boxes for each of the pictures 1 to 16, all different.
std::map<int, std::vector<Answer>> three_each() {
  std::map<int, std::vector<Answer>> answers;
  for (int code = 1; code <= 16; ++code) {
    const auto c = static_cast<float>(code);
    answers[code] = {{c, 4, c + 30, 20, 0.9F, 0}, {c / 2, 24, 40, 44, 0.8F, 1}, {20, c, 60, 60, 0.7F, 2}};
  }
  return answers;
}

struct Outcome {
  std::vector<std::string> lines;
  std::vector<std::shared_ptr<Frame>> frames;
  int encodes = 0, decodes = 0;
  std::int64_t boxes = 0, slots = 0, bisects = 0, splits = 0;
};

struct Given {
  OptionValues segment{};
  Before before_encode{}, before_decode{};
  std::map<int, std::vector<Answer>> answers = three_each();
  std::vector<int> codes = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
  int blank_slot = -1;
  int max_batch = 16, max_boxes = 64;
  int index_shift = 0;  // a planted fault: boxes belong to the picture that is so many rows later
  std::function<void(std::vector<Tensor>& outputs, std::string_view method)> change{};
  std::function<void(std::span<const Tensor> inputs)> seen{};  // gets the inputs of the decoder
};

Outcome run(const Given& given) {
  StageFixture fixture;
  const Package sam = segmenter_package(given.max_batch, given.max_boxes);
  fixture.add_view(detector_package(), detector_by_code(given.answers));
  const auto model = segmenter_by_code(given.before_encode, given.before_decode);
  fixture.set_segmenter(sam, [&, model](std::string_view method, std::span<const Tensor> inputs) {
    if (method == "decode") {
      if (given.seen) given.seen(inputs);
      for (std::int64_t& index : inputs[2].host<std::int64_t>())
        index = (index + given.index_shift) % inputs[0].shape[0];
    }
    auto outputs = model(method, inputs);
    if (given.change) given.change(outputs, method);
    return outputs;
  });
  RecipeLane lane(fixture, {"preprocess", "detect", "segment", "postprocess"}, {{"segment", given.segment}});
  Batch batch = batch_of(given.codes);
  if (given.blank_slot >= 0)
    batch.frames[static_cast<std::size_t>(given.blank_slot)]->fail("decode", Reason::truncated, "cut");
  lane.run(batch);
  return {lines_of(batch, fixture.context()),
          batch.frames,
          fixture.calls(sam, "encode"),
          fixture.calls(sam, "decode"),
          fixture.counters[decoder_boxes].count(),
          fixture.counters[decoder_slots].count(),
          fixture.counters[bisect_calls].count(),
          fixture.counters[split_calls].count()};
}

bool has_own_iou(const Mask& mask, int code, const Detection& found) {
  return mask.predicted_iou == doctest::Approx(fake_iou(code, found.x0, found.y0)).epsilon(1e-6);
}

// Checks that every object has the mask and predicted IoU of its own box and picture, computed here without the stages.
void check_objects(const Outcome& outcome, const Given& given) {
  for (std::size_t slot = 0; slot < outcome.frames.size(); ++slot) {
    const Frame& frame = *outcome.frames[slot];
    if (frame.failed()) continue;
    CAPTURE(slot);
    const int code = given.codes[slot];
    const auto& found = frame.columns.get(detections).list;
    const auto& outlined = frame.columns.get(masks);
    REQUIRE(outlined.size() == found.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      CHECK(has_own_iou(outlined[i], code, found[i]));
      // The mask of the fake in cells of 4 x 4 pixels. Bilinear edges are at most half a cell from the cells' outline.
      double cells = 0;
      const float right = found[i].x0 + (found[i].x1 - found[i].x0) * (1 + static_cast<float>(code % 8)) / 8;
      for (int y = 2; y < side; y += 4) {
        for (int x = 2; x < side; x += 4)
          cells += static_cast<float>(x) >= found[i].x0 && static_cast<float>(x) < right &&
                   static_cast<float>(y) >= found[i].y0 && static_cast<float>(y) < found[i].y1;
      }
      CHECK(static_cast<double>(outlined[i].area) == doctest::Approx(16 * cells).epsilon(0.12));
      CHECK(outlined[i].width == side);
    }
  }
}

// Filled by another stage that reads the embeddings: the code of the picture in each slot, or -1 without an embedding.
std::vector<int> embedded_codes;

class OtherPrompts final : public LaneStage {
 public:
  static constexpr const char* name = "other_prompts";
  struct Options {
    void visit(OptionVisitor& /*v*/) {}
  };
  static StageInfo info(const Options& /*options*/) {
    return {name, Section::lane, "reads what segment encoded", {&image_embeddings, &mask_logits}, {}, {}};
  }
  OtherPrompts(const Options& /*options*/, const StageContext& /*context*/) {}
  void run(Batch& batch) override {
    const ImageEmbeddings& embeddings = batch.columns.get(image_embeddings);
    CHECK(embeddings.model == segmenter_package().folder.string());
    for (const Tensor& one : embeddings.by_slot) {
      embedded_codes.push_back(one.data == nullptr ? -1 : static_cast<int>(std::lround(one.host<const float>()[0])));
    }
  }
};

TEST_CASE("a later stage finds the embedding of each picture that has boxes") {
  StageFixture fixture;
  fixture.add_view(detector_package(), detector_by_code(three_each()));
  fixture.set_segmenter(segmenter_package(), segmenter_by_code());
  std::vector<StageEntry> table = stage_table();
  table.push_back(stage_entry<OtherPrompts>());
  RecipeLane lane(fixture, {"preprocess", "detect", "segment", "other_prompts", "postprocess"}, {},
                  std::make_unique<Device>(), table);
  Batch batch = batch_of({3, 0, 9, 5});  // picture 0 has no boxes
  batch.frames[2]->fail("decode", Reason::truncated, "cut");
  embedded_codes.clear();
  lane.run(batch);
  CHECK(embedded_codes == std::vector<int>{3, -1, -1, 5});
  CHECK(batch.columns.find(image_embeddings) == nullptr);  // freed after its last reader
}

TEST_CASE("16 pictures of 3 boxes: 3 decoder calls when packed, 16 when not, with equal masks") {
  Given given{.segment = {{"box_batch", {"16"}}, {"pack", {"yes"}}}};
  const Outcome packed = run(given);
  CHECK(packed.decodes == 3);
  CHECK(packed.encodes == 16);
  CHECK(packed.boxes == 48);
  CHECK(packed.slots == 48);
  check_objects(packed, given);

  given.segment["pack"] = {"no"};
  const Outcome alone = run(given);
  CHECK(alone.decodes == 16);
  check_objects(alone, given);
  CHECK(alone.lines == packed.lines);
}

TEST_CASE("embeddings of one encoder call reach the decoder without a copy, and those of several as one tensor") {
  for (const char* image_batch : {"16", "2"}) {
    CAPTURE(image_batch);
    StageFixture fixture;
    fixture.add_view(detector_package(), detector_by_code(three_each()));
    const auto model = segmenter_by_code();
    std::vector<Tensor> encoded;
    int views = 0, copies = 0;
    fixture.set_segmenter(segmenter_package(), [&](std::string_view method, std::span<const Tensor> inputs) {
      if (method == "decode") {
        const bool view =
            std::ranges::any_of(encoded, [&](const Tensor& whole) { return whole.storage == inputs.front().storage; });
        ++(view ? views : copies);
      }
      auto outputs = model(method, inputs);
      if (method == "encode") encoded.push_back(outputs.front());
      return outputs;
    });
    RecipeLane lane(fixture, {"preprocess", "detect", "segment", "postprocess"},
                    {{"segment", {{"image_batch", {image_batch}}}}});
    Batch batch = batch_of({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
    lane.run(batch);
    const bool one_call = encoded.size() == 1;
    CHECK(one_call == (std::string_view(image_batch) == "16"));
    CHECK((one_call ? views : copies) >= 1);
    CHECK((one_call ? copies : views) == 0);
  }
}

TEST_CASE("padded decoder calls get the embeddings of all pictures, so their shape does not depend on their boxes") {
  for (const char* image_batch : {"16", "11", "4"}) {
    CAPTURE(image_batch);
    Given given{.segment = {{"box_batch", {"10"}}, {"image_batch", {image_batch}}, {"pad", {"yes"}}}};
    std::vector<std::int64_t> embeddings;
    given.seen = [&](std::span<const Tensor> inputs) { embeddings.push_back(inputs[0].shape[0]); };
    const Outcome outcome = run(given);
    CHECK(embeddings == std::vector<std::int64_t>(5, 16));
    check_objects(outcome, given);
  }
}

TEST_CASE("padded decoder calls that memory makes smaller keep the embeddings of all pictures") {
  Given given{.segment = {{"box_batch", {"16"}}, {"image_batch", {"16"}}, {"pad", {"yes"}}}};
  std::vector<std::int64_t> embeddings;
  given.seen = [&](std::span<const Tensor> inputs) {
    embeddings.push_back(inputs[0].shape[0]);
    if (inputs[1].shape[0] > 4) throw OutOfMemoryError("for so many boxes");
  };
  const Outcome outcome = run(given);
  CHECK(embeddings == std::vector<std::int64_t>(3 * (1 + 2 + 4), 16));
  check_objects(outcome, given);
}

TEST_CASE("a decoder call with the embedding of the wrong picture is found") {
  for (const char* pad : {"no", "yes"}) {
    Given given{.segment = {{"image_batch", {"16"}}, {"pad", {pad}}}};
    for (const int shift : {0, 1}) {
      given.index_shift = shift;
      const Outcome outcome = run(given);
      int own = 0;
      for (std::size_t slot = 0; slot < outcome.frames.size(); ++slot) {
        const auto& found = outcome.frames[slot]->columns.get(detections).list;
        const auto& outlined = outcome.frames[slot]->columns.get(masks);
        for (std::size_t i = 0; i < found.size(); ++i) own += has_own_iou(outlined[i], given.codes[slot], found[i]);
      }
      CHECK(own == (shift == 0 ? 48 : 0));
    }
  }
}

TEST_CASE("segment.box_batch: maximum boxes of a decoder call, at most what the package allows") {
  const auto decodes = [](const char* box_batch, const char* pack, int max_boxes) {
    const Given given{.segment = {{"box_batch", {box_batch}}, {"pack", {pack}}}, .max_boxes = max_boxes};
    const Outcome outcome = run(given);
    check_objects(outcome, given);
    return outcome.decodes;
  };
  CHECK(decodes("1", "yes", 64) == 48);
  CHECK(decodes("5", "yes", 64) == 10);
  CHECK(decodes("48", "yes", 64) == 1);
  CHECK(decodes("1000", "yes", 64) == 1);
  CHECK(decodes("64", "yes", 10) == 5);
  CHECK(decodes("2", "no", 64) == 32);
}

TEST_CASE("segment.pad: calls of powers of two of boxes and pictures, and the same results") {
  Given given{.segment = {{"box_batch", {"20"}}, {"image_batch", {"11"}}}};
  std::vector<std::int64_t> pictures;
  given.change = [&](const std::vector<Tensor>& outputs, std::string_view method) {
    if (method == "encode") pictures.push_back(outputs.front().shape.front());
  };
  const Outcome plain = run(given);
  CHECK(plain.slots == 48);
  CHECK(pictures == std::vector<std::int64_t>{11, 5});
  pictures.clear();
  given.segment["pad"] = {"yes"};
  const Outcome padded = run(given);
  CHECK(padded.decodes == 3);
  CHECK(padded.boxes == 48);
  CHECK(padded.slots == 20 + 20 + 8);  // the last call is not padded: 8 is a power of two
  CHECK(pictures == std::vector<std::int64_t>{11, 8});
  CHECK(padded.lines == plain.lines);
  given.segment["box_batch"] = {"19"};
  CHECK(run(given).slots == 19 + 19 + 16);
  given.max_boxes = 13;
  const Outcome smallest = run(given);
  CHECK(smallest.slots == 13 + 13 + 13 + 13);  // 9 boxes are padded to 13, the maximum of the package
  CHECK(smallest.lines == plain.lines);
}

TEST_CASE("segment.image_batch: pictures of an encoder call, at most what the package allows") {
  Given given;
  const Outcome one = run(given);
  CHECK(one.encodes == 16);
  given.segment = {{"image_batch", {"5"}}};
  const Outcome five = run(given);
  CHECK(five.encodes == 4);
  CHECK(five.lines == one.lines);
  given.max_batch = 2;
  CHECK(run(given).encodes == 8);
}

TEST_CASE("pictures without boxes are fine and cost no call") {
  Given given{.segment = {{"image_batch", {"16"}}}};
  given.answers.erase(2);
  given.codes = {1, 2, 3};
  const Outcome outcome = run(given);
  CHECK(outcome.encodes == 1);
  CHECK(outcome.decodes == 1);
  CHECK(outcome.boxes == 6);
  const auto line = nlohmann::json::parse(outcome.lines[1]);
  CHECK(line["state"] == "ok");
  CHECK(line["objects"].empty());
  check_objects(outcome, given);

  given.codes = {2, 2};
  const Outcome none = run(given);
  CHECK(none.encodes == 0);
  CHECK(none.decodes == 0);
  CHECK(nlohmann::json::parse(none.lines[0])["objects"].empty());
}

TEST_CASE("boxes of the detector reach the decoder in pixels of its input") {
  // The segmenter's input is 64 x 64, so it gets a picture twice as large at half the size.
  StageFixture fixture;
  fixture.add_view_without_detector();
  std::vector<float> seen;
  const auto model = segmenter_by_code();
  fixture.set_segmenter(segmenter_package(), [&](std::string_view method, std::span<const Tensor> inputs) {
    if (method == "decode") {
      const auto boxes = inputs[1].host<const float>();
      seen.assign(boxes.begin(), boxes.end());
    }
    return model(method, inputs);
  });
  RecipeLane lane(fixture, {"preprocess", "detect", "segment", "postprocess"});
  Batch batch = batch_of({3});
  batch.frames[0]->info.width = batch.frames[0]->info.height = 2 * side;
  batch.frames[0]->item.boxes = {{20, 40, 60, 80, 0}};
  lane.run(batch);
  CHECK(seen == std::vector<float>{10, 20, 40, 60});
  const auto& mask = batch.frames[0]->columns.get(masks).front();
  CHECK(mask.width == 2 * side);
  std::int64_t pixels_of_mask = 0;
  for (std::size_t i = 0; i < mask.counts.size(); ++i) pixels_of_mask += mask.counts[i];
  CHECK(pixels_of_mask == 4 * side * side);
}

void check_neighbours(const Outcome& outcome, const Outcome& blank, int bad) {
  for (int i = 0; i < static_cast<int>(outcome.lines.size()); ++i) {
    const auto slot = static_cast<std::size_t>(i);
    CAPTURE(i);
    if (i != bad) CHECK(outcome.lines[slot] == blank.lines[slot]);
  }
  const auto line = nlohmann::json::parse(outcome.lines[static_cast<std::size_t>(bad)]);
  CHECK(line["reason"] == "model_failed");
}

TEST_CASE("a picture that makes the encoder fail does not harm its neighbours") {
  for (const int bad : {0, 6, 15}) {
    CAPTURE(bad);
    const OptionValues values{{"image_batch", {"16"}}};
    const Outcome outcome = run({.segment = values, .before_encode = fails_on(bad + 1)});
    CHECK(outcome.bisects <= 5);
    check_neighbours(outcome, run({.segment = values, .blank_slot = bad}), bad);
  }
}

TEST_CASE("a picture that makes the decoder fail does not harm its neighbours") {
  for (const int bad : {0, 5, 15}) {  // picture 5 has its boxes in two calls
    CAPTURE(bad);
    const Outcome outcome = run({.before_decode = fails_on(bad + 1)});
    CHECK(outcome.bisects <= 5);  // in the second call its rows are already blank
    check_neighbours(outcome, run({.blank_slot = bad}), bad);
  }
}

TEST_CASE("out of memory: halves, marked, with the same results") {
  const OptionValues values{{"image_batch", {"16"}}};
  const Outcome whole = run({.segment = values});
  const auto check = [&](const Outcome& outcome) {
    CHECK(outcome.splits >= 1);
    for (std::size_t i = 0; i < 16; ++i) {
      auto line = nlohmann::json::parse(outcome.lines[i]);
      CHECK(line["exec"] == "split");
      line.erase("exec");
      CHECK(line == nlohmann::json::parse(whole.lines[i]));
    }
  };
  check(run({.segment = values, .before_encode = holds(3)}));
  check(run({.segment = values, .before_decode = holds(2)}));
}

TEST_CASE("NaN and infinity in any output fail only their picture") {
  const Outcome clean = run({});
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t output : {0U, 1U}) {
      CAPTURE(output);
      int calls = 0;
      const Outcome outcome = run({.change = [&](std::vector<Tensor>& outputs, std::string_view method) {
        if (method != "decode" || ++calls != 1) return;
        const std::size_t size = output == 0 ? 16 * 16 : 1;
        outputs[output].host<float>()[4 * size + size / 2] = poison;  // box 4 belongs to picture 1
      }});
      for (std::size_t i = 0; i < 16; ++i) {
        if (i != 1) CHECK(outcome.lines[i] == clean.lines[i]);
      }
      const auto line = nlohmann::json::parse(outcome.lines[1]);
      CHECK(line["state"] == "failed");
      CHECK(line["reason"] == "non_finite");
    }
  }
}

TEST_CASE("a failed frame is not segmented") {
  const Outcome outcome = run({.codes = {1, 2}, .blank_slot = 0});
  CHECK(outcome.encodes == 1);
  CHECK(outcome.boxes == 3);
  CHECK(nlohmann::json::parse(outcome.lines[0])["reason"] == "truncated");
}

TEST_CASE("a recipe with 'segment' needs a segmenter") {
  StageFixture fixture;
  fixture.add_view(detector_package(), detector_by_code({}));
  CHECK_THROWS_WITH_AS(Segment({}, fixture.context()), doctest::Contains("without its segmenter"),
                       std::invalid_argument);
}

TEST_CASE("masks via the input, and directly") {
  Package sam = segmenter_package();  // an input of 64 x 64, logits of 16 x 16
  const auto geometry = [&] { return mask_geometry(sam, letterbox_geometry(200, 100, sam.input)); };
  CHECK(geometry() == MaskGeometry{16, 16, 64, 64, 64, 32, 200, 100});
  sam.input.mode = ResizeMode::stretch;
  CHECK(geometry() == MaskGeometry{16, 16, 64, 64, 64, 64, 200, 100});
  sam.output["resize"] = {masks_direct};
  CHECK(geometry() == MaskGeometry{16, 16, 16, 16, 16, 16, 200, 100});
}

}  // namespace
}  // namespace millrace
