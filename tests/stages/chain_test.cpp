#include "stages/chain.hpp"

#include <doctest/doctest.h>

#include <set>

#include "io/results/json_line.hpp"
#include "stages/decode.hpp"
#include "stages/detect.hpp"
#include "stages/encode.hpp"
#include "stages/stage_entry.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {
namespace {

std::string error_of(const std::vector<RecipeStage>& names, const std::vector<StageEntry>& table = stage_table()) {
  try {
    const Chain chain(
        names, [](const std::string&) { return OptionValues{}; }, table);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

// A row for a table of stages that a test makes.
StageEntry row(const StageInfo& info) {
  StageEntry entry;
  entry.name = info.name;
  entry.parse = [](const OptionValues&, const std::string&) { return StageOptions(); };
  entry.info = [info](const StageOptions&, const std::string&) { return info; };
  return entry;
}

TEST_CASE("the table has every stage in the order of a full pipeline, which is a valid chain") {
  const std::vector<RecipeStage> full{"decode", "preprocess", "detect", "segment", "postprocess", "encode"};
  CHECK(default_stages() == full);  // own stages of users may be between them in the table
  CHECK(error_of(full) == "");
  std::vector<RecipeStage> all;
  for (const auto& entry : stage_table()) all.emplace_back(entry.name);
  CHECK(error_of(all) == "");
  for (const auto& entry : stage_table()) {
    CHECK(entry.default_info().name == entry.name);
    CHECK_FALSE(entry.default_info().summary.empty());
    CAPTURE(entry.name);  // the base class fits the section
    CHECK(static_cast<bool>(entry.make_frame_stage) == (entry.default_info().section == Section::frame));
    CHECK(static_cast<bool>(entry.make_lane_stage) == (entry.default_info().section == Section::lane));
    CHECK(static_cast<bool>(entry.make_batch_stage) == (entry.default_info().section == Section::batch));
  }
}

TEST_CASE("a recipe that cannot work is refused with advice") {
  CHECK(error_of({}) == "the recipe names no stages; list them under 'stages:'");
  CHECK(error_of({"decode", "dedect"}) == "'dedect' is no stage; did you mean 'detect'? `millrace stages` lists them");
  CHECK(error_of({"decode", "detect"}) ==
        "stage 'detect' reads 'model_inputs', which no stage before it writes; put 'preprocess' before it");
  CHECK(error_of({"preprocess"}) ==
        "stage 'preprocess' reads 'pixels', which no stage before it writes; put 'decode' before it");
  CHECK(error_of({"decode", "preprocess", "segment"}) ==
        "stage 'segment' reads 'detections', which no stage before it writes; put 'detect' before it");
  CHECK(error_of({"decode", "preprocess", "detect", "postprocess", "segment"}) ==
        "stage 'postprocess' reads 'mask_logits', which no stage before it writes; put 'segment' before it");
  CHECK(error_of({"decode", "encode", "preprocess"}) ==
        "stage 'preprocess' works in the lane and cannot come after 'encode', which works on batches after the lane");
  CHECK(error_of({"decode", "preprocess", "decode"}) ==
        "stage 'decode' works on single pictures and cannot come after 'preprocess', which works in the lane");
  CHECK(error_of({"decode", "decode"}) == "stage 'decode' appears twice in the recipe; remove one");
  CHECK(error_of({"decode", "preprocess", "detect", "detect"}) ==
        "stage 'detect' appears twice in the recipe; remove one");
}

TEST_CASE("a field has one writer") {
  static constexpr Field<int> size{"size"};
  const std::vector<StageEntry> table{row({"measure", Section::frame, "", {}, {&size}, {}}),
                                      row({"guess", Section::frame, "", {}, {&size}, {}})};
  CHECK(error_of({"measure"}, table) == "");
  CHECK(error_of({"measure", "guess"}, table) == "stages 'measure' and 'guess' both write 'size'; remove one of them");
}

// The message about fields that cannot be in one line; empty if they can.
std::string clash_of(const std::vector<StageEntry>& table) {
  std::vector<RecipeStage> names;
  for (const auto& entry : table) names.emplace_back(entry.name);
  try {
    error_of(names, table);
  } catch (const std::logic_error& error) {
    return error.what();
  }
  return "";
}

void write_int(const int& value, JsonWriter& json) { json.value(value); }
void write_nothing(const int& /*value*/, std::size_t /*index*/, JsonWriter& /*json*/) {}

TEST_CASE("two fields of one name are refused, in the line or not") {
  static constexpr Field<int> inner{"size"}, line{"size", write_int}, other{"weight", write_int};
  const auto stage = [](const char* name, Fields writes) { return row({name, Section::frame, "", {}, writes, {}}); };
  const std::string said =
      "field 'size' of stage 'guess' and field 'size' of stage 'measure' both have the name 'size'; "
      "rename one of them where the stage declares it";
  CHECK(clash_of({stage("measure", {&inner}), stage("guess", {&line})}) == said);
  CHECK(clash_of({stage("measure", {&line}), stage("guess", {&inner})}) == said);
  CHECK(clash_of({stage("measure", {&inner, &line})}) != "");
  CHECK(clash_of({stage("measure", {&inner}), stage("guess", {&other})}) == "");
}

TEST_CASE("a field in the line cannot have the name of one of the line's own keys") {
  for (const std::string_view key : line_keys.all()) {
    const Field<int> line{key, write_int}, inner{key};
    CHECK(clash_of({row({"fog", Section::frame, "", {}, {&line}, {}})}) ==
          "field '" + std::string(key) +
              "' of stage 'fog' has the name of a key that segment lines already have; rename it where the stage "
              "declares it");
    CHECK(clash_of({row({"fog", Section::frame, "", {}, {&inner}, {}})}) == "");  // a field that is not in the line
  }
}

TEST_CASE("two fields cannot add one key to an object") {
  static constexpr Keys keys{"depth", "area"};
  static constexpr Field<int> depth{"depths", keys, write_nothing};
  const std::vector<StageEntry> known = stage_table();
  std::vector<StageEntry> table;
  for (const auto& entry : known) {
    if (entry.name == "encode") table.push_back(row({"fog", Section::lane, "", {}, {&depth}, {}}));
    table.push_back(entry);
  }
  CHECK(
      clash_of(table) ==
      "field 'depths' of stage 'fog' and field 'masks' of stage 'postprocess' both have the object key 'area'; rename "
      "one of them where the stage declares it");
  CHECK(clash_of({row({"fog", Section::lane, "", {}, {&depth}, {}})}) == "");
}

TEST_CASE("a line has only the listed keys and the names of fields") {
  StageFixture fixture;
  fixture.add_view_without_detector();
  const auto listed = [](std::string_view key) {
    return std::ranges::find(line_keys.all(), key) != line_keys.all().end();
  };
  std::vector<std::shared_ptr<Frame>> frames{picture(1), picture(1), picture(1)};
  frames[0]->split = true;
  frames[0]->item.path = "\xFF.jpg";
  frames[1]->fail("decode", Reason::truncated, "torn");
  frames[2]->columns.set(detections, Detections{});
  std::set<std::string> found;
  for (const auto& frame : frames) {
    const nlohmann::json line = line_of(*frame, fixture.context());
    for (const auto& [key, value] : line.items()) {
      CAPTURE(key);
      CHECK(listed(key));
      found.insert(key);
    }
  }
  CHECK(found.size() == line_keys.all().size());
}

TEST_CASE("a field that no stage writes is named without advice") {
  static constexpr Field<int> depth{"depth"};
  CHECK(error_of({"fog"}, {row({"fog", Section::lane, "", {&depth}, {}, {}})}) ==
        "stage 'fog' reads 'depth', which no stage before it writes");
}

TEST_CASE("options reach their stage and are checked with the chain") {
  const auto with = [](const OptionValues& values) {
    return [values](const std::string& stage) { return stage == "encode" ? values : OptionValues{}; };
  };
  CHECK_THROWS_WITH_AS(Chain({"decode", "encode"}, with({{"formt", {"png"}}})),
                       doctest::Contains("did you mean 'encode.format'?"), UsageError);
  CHECK_THROWS_WITH_AS(Chain({"decode", "encode"}, with({{"format", {"gif"}}})), doctest::Contains("not 'gif'"),
                       UsageError);
  const Chain chain({"decode", "encode"}, with({{"format", {"png"}}}));
  CHECK(chain.options<Encode>().format == std::vector<std::string>{"png"});
  CHECK(chain.find("detect") == nullptr);
  CHECK(chain.of(Section::frame).size() == 1);
  CHECK(chain.of(Section::lane).empty());
  CHECK(chain.of(Section::batch).size() == 1);
}

TEST_CASE("a field is freed after its last reader") {
  const auto frees = [](const std::vector<RecipeStage>& names, const char* stage, const OptionValues& encode = {}) {
    const Chain chain(names, [&](const std::string& s) { return s == "encode" ? encode : OptionValues{}; });
    std::vector<std::string> found;
    for (const FieldBase* field : chain.find(stage)->frees) found.emplace_back(field->name);
    return found;
  };
  using Names = std::vector<std::string>;
  const std::vector<RecipeStage> full{"decode", "preprocess", "detect", "segment", "postprocess", "encode"};
  CHECK(frees(full, "decode").empty());
  CHECK(frees(full, "preprocess") == Names{"pixels", "uploaded"});
  CHECK(frees(full, "detect").empty());
  CHECK(frees(full, "segment") == Names{"model_inputs", "image_embeddings"});
  CHECK(frees(full, "postprocess") == Names{"mask_logits"});
  CHECK(frees(full, "encode").empty());  // fields of the line stay
  CHECK(frees(full, "preprocess", {{"format", {"overlay"}}}) == Names{"uploaded"});
  CHECK(frees(full, "encode", {{"format", {"overlay"}}}) == Names{"pixels"});
  CHECK(frees({"decode", "encode"}, "decode") == Names{"pixels"});  // no stage reads them
  CHECK(frees({"decode", "preprocess", "detect", "encode"}, "preprocess") == Names{"pixels", "uploaded"});
}

// The pixels own the byte credit: their deleter gives it back, as for pixels of `decode`.
std::shared_ptr<Frame> picture_with_credit(const std::shared_ptr<CountingBudget>& budget) {
  auto frame = picture(5);
  const auto credit = std::make_shared<ByteCredit>(budget, 1000);
  PixelBuffer raster = frame->columns.get(pixels);
  frame->columns.drop(pixels);
  const auto* data = raster.data.get();
  raster.data = {raster.data.get(), [kept = raster.data, credit](std::uint8_t*) {}};
  CHECK(raster.data.get() == data);
  frame->columns.set(pixels, std::move(raster));
  return frame;
}

TEST_CASE("pixels give their bytes back after preprocess, with overlays after encode") {
  for (const bool overlay : {false, true}) {
    CAPTURE(overlay);
    StageFixture fixture;
    fixture.add_view(detector_package(), detector_by_code({}));
    const Chain chain({"decode", "preprocess", "detect", "encode"}, [&](const std::string& stage) {
      return overlay && stage == "encode" ? OptionValues{{"format", {"overlay"}}} : OptionValues{};
    });
    const auto budget = std::make_shared<CountingBudget>();
    Batch batch({picture_with_credit(budget)});
    const ChainLink& link = *chain.find("preprocess");
    run_stage(link, *link.entry->make_lane_stage(link.options, fixture.context(), link.info), batch);
    CHECK(budget->returned == (overlay ? 0 : 1000));
  }
}

TEST_CASE("a frame that fails in a stage gives its bytes back at once") {
  static constexpr Field<int> seen{"seen"};
  struct Fails final : FrameStage {
    void run(Frame& frame) const override { frame.fail("check", Reason::corrupt_data, "torn"); }
  };
  const std::vector<StageEntry> table{row({"load", Section::frame, "", {}, {&pixels}, {}}),
                                      row({"check", Section::frame, "", {&pixels}, {&seen}, {}}),
                                      row({"draw", Section::batch, "", {&pixels}, {}, {}})};
  const Chain chain(
      {"load", "check", "draw"}, [](const std::string&) { return OptionValues{}; }, table);
  const auto budget = std::make_shared<CountingBudget>();
  const auto frame = picture_with_credit(budget);
  run_stage(*chain.find("check"), Fails(), *frame);
  CHECK(budget->returned == 1000);
}

TEST_CASE("an exception of a stage becomes the frame's failure") {
  const auto failure_of = [](const auto& thrown) {
    const auto budget = std::make_shared<CountingBudget>();
    const auto frame = picture_with_credit(budget);
    fail_frame(*frame, "decode", std::make_exception_ptr(thrown));
    CHECK(budget->returned == 1000);
    return *frame->failure;
  };
  Failure failure = failure_of(PictureError(Reason::truncated, "the data end"));
  CHECK(failure.stage == "decode");
  CHECK(failure.reason == Reason::truncated);
  CHECK(failure.detail == "the data end");
  CHECK(failure_of(std::bad_alloc()).reason == Reason::oom_host);
  failure = failure_of(std::runtime_error("surprise"));
  CHECK(failure.reason == Reason::internal);
  CHECK(failure.detail == "decode: surprise");
  CHECK(failure_of(42).reason == Reason::internal);
}

TEST_CASE("the first failure of a frame stays") {
  const auto frame = picture(1);
  frame->fail("decode", Reason::truncated, "first");
  frame->fail("encode", Reason::internal, "second");
  CHECK(frame->failure->detail == "first");
}

#ifdef MILLRACE_CHECK_FIELDS
TEST_CASE("a stage that reads a field it does not list is caught when it runs") {
  struct Peeks final : LaneStage {
    void run(Batch& batch) override { batch.frames.front()->columns.find(detections); }
  };
  const std::vector<StageEntry> table{row({"peek", Section::lane, "", {}, {}, {}})};
  const Chain chain(
      {"peek"}, [](const std::string&) { return OptionValues{}; }, table);
  Peeks stage;
  Batch batch = batch_of({1});
  CHECK_THROWS_WITH_AS(run_stage(*chain.find("peek"), stage, batch),
                       doctest::Contains("stage 'peek' reads field 'detections'"), std::logic_error);
}
#endif

}  // namespace
}  // namespace millrace
