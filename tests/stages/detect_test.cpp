#include "stages/detect.hpp"

#include <doctest/doctest.h>

#include <limits>

#include "stages/model_call.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

const std::vector<Answer> four{
    {10, 10, 30, 30, 0.9F, 0},  // a cat
    {11, 10, 31, 30, 0.8F, 0},  // the same cat again: IoU 0.9
    {12, 10, 32, 30, 0.6F, 1},  // a dog at the same place
    {40, 40, 44, 44, 0.3F, 2},  // a small bird
};

// The scores of the objects that these options keep, in a picture with the four answers.
std::vector<float> scores_with(const OptionValues& values, std::int64_t* truncated = nullptr) {
  StageFixture fixture;
  fixture.add_view(detector_package(), detector_by_code({{1, four}}));
  RecipeLane lane(fixture, {"preprocess", "detect"}, {{"detect", values}});
  Batch batch = batch_of({1});
  lane.run(batch);
  std::vector<float> scores;
  for (const auto& found : batch.frames[0]->columns.get(detections).list) scores.push_back(found.score);
  if (truncated != nullptr) *truncated = fixture.counters[truncated_detections].count();
  return scores;
}

using Scores = std::vector<float>;

TEST_CASE("objects of each picture, best first, in picture pixels") {
  StageFixture fixture;
  fixture.add_view(detector_package(), detector_by_code({{1, four}, {2, {{-5, 20, 15, 90, 0.5F, 1}}}}));
  RecipeLane lane(fixture, {"preprocess", "detect"});
  Batch batch = batch_of({2, 7, 1});
  lane.run(batch);
  CHECK(line_of(*batch.frames[0], fixture.context()).dump() ==
        nlohmann::json::parse(R"({"id": 0, "path": "picture0.png", "width": 64, "height": 64, "view": "all",
          "state": "ok", "detector": "fake-yolo",
          "objects": [{"box": [0, 20, 15, 44], "score": 0.5, "class": 1, "name": "dog"}]})")
            .dump());
  CHECK(line_of(*batch.frames[1], fixture.context())["objects"].empty());
  CHECK(line_of(*batch.frames[1], fixture.context())["state"] == "ok");
  CHECK(line_of(*batch.frames[2], fixture.context())["objects"].size() == 3);
}

TEST_CASE("detect.conf, iou, max_detections, min_area, classes, class_agnostic change the objects") {
  CHECK(scores_with({}) == Scores{0.9F, 0.6F, 0.3F});
  CHECK(scores_with({{"conf", {"0.5"}}}) == Scores{0.9F, 0.6F});
  CHECK(scores_with({{"iou", {"0.95"}}}) == Scores{0.9F, 0.8F, 0.6F, 0.3F});
  CHECK(scores_with({{"min_area", {"17"}}}) == Scores{0.9F, 0.6F});
  CHECK(scores_with({{"min_area", {"16"}}}) == Scores{0.9F, 0.6F, 0.3F});
  CHECK(scores_with({{"classes", {"dog"}}}) == Scores{0.6F});
  CHECK(scores_with({{"classes", {"2", "cat"}}}) == Scores{0.9F, 0.3F});
  CHECK(scores_with({{"class_agnostic", {"yes"}}}) == Scores{0.9F, 0.3F});
}

TEST_CASE("detect.max_detections keeps the best and counts the pictures it cut") {
  std::int64_t truncated = 0;
  CHECK(scores_with({{"max_detections", {"2"}}}, &truncated) == Scores{0.9F, 0.6F});
  CHECK(truncated == 1);
  CHECK(scores_with({{"max_detections", {"3"}}}, &truncated) == Scores{0.9F, 0.6F, 0.3F});
  CHECK(truncated == 0);
}

TEST_CASE("objects of unwanted classes do not count for the limit") {
  CHECK(scores_with({{"classes", {"bird"}}, {"max_detections", {"1"}}}) == Scores{0.3F});
  CHECK(scores_with({{"classes", {"dog"}}, {"class_agnostic", {"yes"}}}) == Scores{0.6F});
}

TEST_CASE("a class that the detector does not have is refused") {
  CHECK_THROWS_WITH_AS(scores_with({{"classes", {"dgo"}}}),
                       doctest::Contains("the detector fake-yolo has no class 'dgo'; did you mean 'dog'?"), UsageError);
  CHECK_THROWS_WITH_AS(scores_with({{"classes", {"3"}}}), doctest::Contains("has no class '3'"), UsageError);
}

TEST_CASE("detect.exec_batch: pictures of a call, at most what the package allows") {
  const auto calls = [](const OptionValues& values, int max_batch, int batch_size) {
    StageFixture fixture(batch_size);
    const Package package = detector_package("fake-yolo", max_batch);
    fixture.add_view(package, detector_by_code({{1, four}}));
    RecipeLane lane(fixture, {"preprocess", "detect"}, {{"detect", values}});
    Batch batch = batch_of({1, 1, 1, 1, 1, 1, 1, 1});
    lane.run(batch);
    for (const auto& frame : batch.frames) CHECK(frame->columns.get(detections).list.size() == 3);
    CHECK(fixture.counters[detector_calls].count() == fixture.calls(package, "forward"));
    return fixture.calls(package, "forward");
  };
  CHECK(calls({}, 16, 8) == 1);
  CHECK(calls({}, 1, 8) == 8);
  CHECK(calls({}, 3, 8) == 3);
  CHECK(calls({{"exec_batch", {"4"}}}, 16, 8) == 2);
  CHECK(calls({{"exec_batch", {"100"}}}, 4, 8) == 2);
}

TEST_CASE("detect.pad: the size of a call is a power of two, at most that of a full call; objects are the same") {
  const auto shapes = [](const OptionValues& values, int max_batch, bool engine_pads = false) {
    StageFixture fixture(16);
    fixture.engines_pad = engine_pads;
    const Package package = detector_package("fake-yolo", max_batch);
    std::vector<std::int64_t> seen;
    const auto model = detector_by_code({{1, four}, {2, {four.front()}}});
    fixture.add_view(package, [&seen, model](std::string_view method, std::span<const Tensor> inputs) {
      seen.push_back(inputs.front().shape.front());
      return model(method, inputs);
    });
    RecipeLane lane(fixture, {"preprocess", "detect"}, {{"detect", values}});
    Batch batch = batch_of({1, 2, 1, 2, 1});
    lane.run(batch);
    for (std::size_t i = 0; i < batch.frames.size(); ++i)
      CHECK(batch.frames[i]->columns.get(detections).list.size() == (i % 2 == 0 ? 3 : 1));
    return seen;
  };
  using Shapes = std::vector<std::int64_t>;
  CHECK(shapes({}, 16) == Shapes{5});
  CHECK(shapes({{"pad", {"yes"}}}, 16) == Shapes{8});
  CHECK(shapes({{"pad", {"yes"}}}, 6) == Shapes{6});
  CHECK(shapes({{"pad", {"yes"}}, {"exec_batch", {"3"}}}, 16) == Shapes{3, 2});
  // The libraries of a variant have their own row counts.
  CHECK(shapes({{"pad", {"yes"}}}, 16, true) == Shapes{5});
}

TEST_CASE("three views with three detectors that find different objects in the same picture") {
  const auto package = [](const char* name, const char* first_class) {
    Package made = detector_package(name);
    made.classes[0] = first_class;
    return made;
  };
  const auto run = [&](std::int64_t budget, int rounds, CacheStatistics& statistics) {
    StageFixture fixture(1, budget);
    fixture.add_view(package("yolo-front", "car"), detector_by_code({{1, {{0, 0, 10, 10, 0.5F, 0}}}}), "front");
    fixture.add_view(package("yolo-left", "kerb"), detector_by_code({{1, {{0, 0, 20, 20, 0.6F, 0}}}}), "left");
    fixture.add_view(package("yolo-right", "tree"), detector_by_code({{1, {{0, 0, 30, 30, 0.7F, 0}}}}), "right");
    RecipeLane lane(fixture, {"preprocess", "detect"});
    std::vector<std::string> lines;
    for (int batch_index = 0; batch_index < 3 * rounds; ++batch_index) {
      Batch batch = batch_of({1}, batch_index % 3);
      lane.run(batch);
      lines.push_back(lines_of(batch, fixture.context()).front());
    }
    statistics = fixture.models().statistics();
    CHECK(fixture.loads.size() == statistics.loads.size());
    return lines;
  };
  CacheStatistics statistics;
  const auto lines = run(300, 3, statistics);
  CHECK(statistics.loads.size() == 3);  // each package is loaded once
  CHECK(statistics.evictions == 0);
  const char* const expected[3][4] = {{"front", "yolo-front", "car", "[0,0,10,10]"},
                                      {"left", "yolo-left", "kerb", "[0,0,20,20]"},
                                      {"right", "yolo-right", "tree", "[0,0,30,30]"}};
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto line = nlohmann::json::parse(lines[i]);
    CHECK(line["view"] == expected[i % 3][0]);
    CHECK(line["detector"] == expected[i % 3][1]);
    CHECK(line["objects"][0]["name"] == expected[i % 3][2]);
    CHECK(line["objects"][0]["box"].dump() == expected[i % 3][3]);
  }
  const auto again = run(250, 3, statistics);  // a budget for two models
  CHECK(again == lines);
  CHECK(statistics.loads.size() == 9);
  CHECK(statistics.evictions == 7);
  CHECK(statistics.resident_bytes == 200);
}

TEST_CASE("boxes of a manifest replace the detector and are clipped") {
  StageFixture fixture;
  const Package package = detector_package();
  fixture.add_view(package, detector_by_code({{1, four}}));
  RecipeLane lane(fixture, {"preprocess", "detect"});
  Batch batch = batch_of({1, 1});
  batch.frames[0]->item.boxes = {{-10, 5, 30, 10, 2}, {60, 60, 20, 20, 0}, {100, 100, 5, 5, 9}};
  batch.frames[1]->item.boxes = std::vector<PromptBox>{};
  lane.run(batch);
  CHECK(fixture.calls(package, "forward") == 0);
  CHECK(fixture.loads.empty());
  CHECK(fixture.counters[detector_skipped].count() == 2);
  const auto line = line_of(*batch.frames[0], fixture.context());
  CHECK(line["objects"].dump() == nlohmann::json::parse(R"([
      {"box": [0, 5, 20, 10], "score": 1, "class": 2, "name": "bird"},
      {"box": [60, 60, 4, 4], "score": 1, "class": 0, "name": "cat"},
      {"box": [64, 64, 0, 0], "score": 1, "class": 9}])")
                                      .dump());
  CHECK_FALSE(line.contains("detector"));
  CHECK(line_of(*batch.frames[1], fixture.context())["objects"].empty());
  CHECK(line_of(*batch.frames[1], fixture.context())["state"] == "ok");
}

TEST_CASE("pictures with and without boxes in one batch") {
  StageFixture fixture;
  const Package package = detector_package();
  fixture.add_view(package, detector_by_code({{1, four}}));
  RecipeLane lane(fixture, {"preprocess", "detect"});
  Batch batch = batch_of({1, 1, 1});
  batch.frames[1]->item.boxes = {{1, 2, 3, 4, 0}};
  lane.run(batch);
  CHECK(fixture.calls(package, "forward") == 1);
  CHECK(batch.frames[0]->columns.get(detections).list.size() == 3);
  CHECK(batch.frames[1]->columns.get(detections).list.size() == 1);
  CHECK(batch.frames[2]->columns.get(detections).list.size() == 3);
}

TEST_CASE("detect.skip_with_boxes=no calls the detector for pictures with boxes, and keeps the boxes") {
  StageFixture fixture;
  const Package package = detector_package();
  fixture.add_view(package, detector_by_code({{1, four}}));
  RecipeLane lane(fixture, {"preprocess", "detect"}, {{"detect", {{"skip_with_boxes", {"no"}}}}});
  Batch batch = batch_of({1});
  batch.frames[0]->item.boxes = {{1, 2, 3, 4, 0}};
  lane.run(batch);
  CHECK(fixture.calls(package, "forward") == 1);
  CHECK(fixture.counters[detector_skipped].count() == 0);
  CHECK(batch.frames[0]->columns.get(detections).list.size() == 1);
}

TEST_CASE("with detect.skip_with_boxes=no, a picture with boxes does not fail with the detector") {
  const Answer poison{std::numeric_limits<float>::quiet_NaN(), 1, 2, 3, 0.9F, 0};
  for (const auto& function :
       {detector_by_code({{1, {poison}}, {2, four}}), detector_by_code({{2, four}}, fails_on(1))}) {
    StageFixture fixture;
    fixture.add_view(detector_package(), function);
    RecipeLane lane(fixture, {"preprocess", "detect"}, {{"detect", {{"skip_with_boxes", {"no"}}}}});
    Batch batch = batch_of({1, 2});
    batch.frames[0]->item.boxes = {{1, 2, 3, 4, 0}};
    lane.run(batch);
    REQUIRE_FALSE(batch.frames[0]->failed());
    CHECK(batch.frames[0]->columns.get(detections).list.size() == 1);
    CHECK(batch.frames[1]->columns.get(detections).list.size() == 3);
  }
}

TEST_CASE("with detect.skip_with_boxes=no, a split call does not mark pictures with boxes") {
  StageFixture fixture;
  fixture.add_view(detector_package(), detector_by_code({{1, four}, {2, four}}, holds(1)));
  RecipeLane lane(fixture, {"preprocess", "detect"}, {{"detect", {{"skip_with_boxes", {"no"}}}}});
  Batch batch = batch_of({1, 2});
  batch.frames[0]->item.boxes = {{1, 2, 3, 4, 0}};
  lane.run(batch);
  CHECK_FALSE(batch.frames[0]->split);
  CHECK(batch.frames[1]->split);
}

TEST_CASE("a view without a detector takes boxes from the manifest only") {
  StageFixture fixture;
  fixture.add_view_without_detector();
  RecipeLane lane(fixture, {"preprocess", "detect"});
  Batch batch = batch_of({1, 1});
  batch.frames[0]->item.boxes = {{1, 2, 3, 4, 5}};
  lane.run(batch);
  CHECK(line_of(*batch.frames[0], fixture.context())["objects"].dump() == R"([{"box":[1,2,3,4],"class":5,"score":1}])");
  REQUIRE(batch.frames[1]->failed());
  CHECK(batch.frames[1]->failure->detail.find("add --detector PACKAGE") != std::string::npos);
}

// Runs 16 pictures, codes 1 to 16, and returns their lines.
std::vector<std::string> sixteen(const FakeEngine::Function& function, int blank_slot, Counters* counters = nullptr) {
  StageFixture fixture;
  fixture.add_view(detector_package(), function);
  RecipeLane lane(fixture, {"preprocess", "detect"});
  std::vector<int> codes(16);
  for (int i = 0; i < 16; ++i) codes[static_cast<std::size_t>(i)] = i + 1;
  Batch batch = batch_of(codes);
  if (blank_slot >= 0) batch.frames[static_cast<std::size_t>(blank_slot)]->fail("decode", Reason::truncated, "cut");
  lane.run(batch);
  if (counters != nullptr) {
    for (const CounterInfo* info : {&bisect_calls, &split_calls}) (*counters)[*info] += fixture.counters[*info].count();
  }
  return lines_of(batch, fixture.context());
}

// A box of its own for each picture.
std::map<int, std::vector<Answer>> sixteen_answers() {
  std::map<int, std::vector<Answer>> answers;
  for (int code = 1; code <= 16; ++code) {
    const auto c = static_cast<float>(code);
    answers[code] = {{c, c, 2 * c + 10, 50, 0.5F + c / 100, code % 3}};
  }
  return answers;
}

TEST_CASE("a picture that makes the call fail does not harm its neighbours") {
  for (const int bad : {0, 5, 15}) {
    CAPTURE(bad);
    Counters counters(counters_of());
    const auto lines = sixteen(detector_by_code(sixteen_answers(), fails_on(bad + 1)), -1, &counters);
    const auto blank = sixteen(detector_by_code(sixteen_answers()), bad);
    CHECK(counters[bisect_calls].count() <= 5);  // log2(16) + 1
    for (int i = 0; i < 16; ++i) {
      const auto slot = static_cast<std::size_t>(i);
      if (i != bad) CHECK(lines[slot] == blank[slot]);
    }
    const auto failed = nlohmann::json::parse(lines[static_cast<std::size_t>(bad)]);
    CHECK(failed["state"] == "failed");
    CHECK(failed["reason"] == "model_failed");
    CHECK(failed["detail"] == "cannot bear this picture");
    CHECK_FALSE(failed.contains("objects"));
  }
}

TEST_CASE("out of memory: halves, marked, with the same results") {
  Counters counters(counters_of());
  const auto lines = sixteen(detector_by_code(sixteen_answers(), holds(4)), -1, &counters);
  const auto whole = sixteen(detector_by_code(sixteen_answers()), -1);
  CHECK(counters[split_calls].count() == 3);
  for (std::size_t i = 0; i < 16; ++i) {
    auto line = nlohmann::json::parse(lines[i]);
    CHECK(line["exec"] == "split");
    line.erase("exec");
    CHECK(line == nlohmann::json::parse(whole[i]));
  }
}

TEST_CASE("NaN from the detector fails only that picture") {
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    auto answers = sixteen_answers();
    answers[4][0].x0 = poison;
    const auto lines = sixteen(detector_by_code(answers), -1);
    const auto clean = sixteen(detector_by_code(sixteen_answers()), -1);
    for (std::size_t i = 0; i < 16; ++i) {
      if (i != 3) CHECK(lines[i] == clean[i]);
    }
    CHECK(nlohmann::json::parse(lines[3])["reason"] == "non_finite");
  }
}

TEST_CASE("outputs of other sizes than the package declares are refused before anything reads them") {
  const auto shorter = [](std::string_view, std::span<const Tensor> inputs) {
    return std::vector{Tensor::empty({inputs.front().shape[0], 7, 3})};
  };
  CHECK_THROWS_WITH_AS(sixteen(shorter, -1), doctest::Contains("unexpected shape of output 0"), PackageError);
}

TEST_CASE("a batch whose frames all failed does not reach the detector") {
  StageFixture fixture;
  const Package package = detector_package();
  fixture.add_view(package, detector_by_code({{1, four}}));
  RecipeLane lane(fixture, {"preprocess", "detect"});
  Batch batch = batch_of({1, 1});
  for (const auto& frame : batch.frames) frame->fail("decode", Reason::empty, "no bytes");
  lane.run(batch);
  CHECK(fixture.loads.empty());
  CHECK(line_of(*batch.frames[0], fixture.context())["reason"] == "empty");
}

}  // namespace
}  // namespace millrace
