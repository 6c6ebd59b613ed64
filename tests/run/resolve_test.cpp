// The numbers of a run follow from settings, cores and the plan.
#include "run/resolve.hpp"
#include "base/json.hpp"

#include <doctest/doctest.h>

#include <array>
#include <map>

#include "run/settings.hpp"
#include "run/setup.hpp"
#include "stages/detect.hpp"
#include "stages/registry.hpp"

namespace millrace {
namespace {

ResolvedConfig resolved(const std::vector<std::string>& assignments, int cores,
                        std::optional<int> planned = std::nullopt) {
  Settings settings;
  for (const auto& assignment : assignments) settings.set(assignment);
  return resolve(parse_config(settings), cores, planned);
}

TEST_CASE("numbers that are not set follow the cores of the machine") {
  struct Row {
    int cores, team, lanes, workers, frames;
  };
  for (const Row& row : {Row{1, 1, 1, 1, 16}, Row{2, 1, 2, 1, 16}, Row{4, 1, 4, 1, 16}, Row{8, 1, 8, 2, 20},
                         Row{15, 1, 15, 3, 34}, Row{16, 2, 8, 4, 20}, Row{64, 8, 8, 16, 20}, Row{128, 8, 16, 32, 36}}) {
    CAPTURE(row.cores);
    const ResolvedConfig it = resolved({}, row.cores);
    CHECK(it.team == row.team);
    CHECK(it.graph.lanes == row.lanes);
    CHECK(it.graph.workers == row.workers);
    CHECK(it.batch_size == 1);
    CHECK(it.graph.admission_items == row.frames);
  }
}

TEST_CASE("teams and lanes share the cores, whichever of them is set") {
  CHECK(resolved({"threads.lanes=1"}, 8).team == 8);
  CHECK(resolved({"threads.lanes=2"}, 8).team == 4);
  CHECK(resolved({"threads.lanes=20"}, 8).team == 1);
  CHECK(resolved({"threads.team=4"}, 8).graph.lanes == 2);
  CHECK(resolved({"threads.team=3"}, 2).graph.lanes == 1);
  CHECK(resolved({}, 8, 2).graph.lanes == 4);  // the team of the plan
}

TEST_CASE("if memory allows few lanes, their teams are larger, unless the plan has another team") {
  const Config config = parse_config(Settings());
  for (const auto& [most, team, lanes] : {std::array{1, 8, 1}, std::array{3, 5, 3}, std::array{8, 2, 8}}) {
    const ResolvedConfig it = resolve(config, 16, std::nullopt, {}, most);
    CHECK(it.team == team);
    CHECK(it.graph.lanes == lanes);
  }
  const ResolvedConfig planned = resolve(config, 16, 1, {}, 3);
  CHECK(planned.team == 1);
  CHECK(planned.graph.lanes == 3);
}

TEST_CASE("on a GPU an option that is not set has its default for GPUs") {
  Devices gpu;
  gpu.kind = Devices::Kind::simulated;
  const auto options = [](const Devices& devices) {
    Settings settings;
    settings.set("segment.image_batch=7");
    use_defaults_of(devices, settings);
    const auto values = settings.values("segment");
    const auto of = [&](const char* name) { return values.count(name) == 0 ? "" : values.at(name).front(); };
    return std::vector<std::string>{of("image_batch"), of("box_batch"), of("pad"), of("pack")};
  };
  CHECK(options(gpu) == std::vector<std::string>{"7", "160", "yes", ""});
  CHECK(options({}) == std::vector<std::string>{"7", "", "", ""});
  std::map<std::string, std::string> all;
  for (const auto& entry : stage_table()) {
    for (const auto& option : entry.options) {
      if (!option.on_gpu.empty()) all[entry.name + "." + option.name] = option.on_gpu;
    }
  }
  CHECK(all == std::map<std::string, std::string>{{"detect.pad", "yes"},
                                                  {"segment.box_batch", "160"},
                                                  {"segment.image_batch", "16"},
                                                  {"segment.pad", "yes"},
                                                  {"embed.pad", "yes"},
                                                  {"categorize.pad", "yes"},
                                                  {"regress.pad", "yes"},
                                                  {"semantic.window_batch", "16"}});
}

TEST_CASE("the plan's team is used on any machine, unless the user sets another") {
  CHECK(resolved({}, 64, 2).team == 2);
  CHECK(resolved({"threads.team=3"}, 64, 2).team == 3);
}

TEST_CASE("the gate grows with the batch") {
  const ResolvedConfig it = resolved({"batch.size=16", "gate.slab=64M"}, 4);
  CHECK(it.graph.max_batch == 16);
  CHECK(it.graph.admission_items == 16 * 12);
  CHECK(resolved({"batch.size=16", "gate.slab=64M", "threads.lanes=1"}, 4).graph.admission_items == 96);
  CHECK(it.graph.byte_budget == std::int64_t{2} * 16 * 64 * 1024 * 1024);
}

TEST_CASE("a gate that is too small for two batches is a usage error that names the option") {
  for (const char* wrong : {"gate.frames=7", "gate.memory=500M"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(resolved({"batch.size=4", wrong}, 4), UsageError);
  }
  CHECK(resolved({"batch.size=4", "gate.frames=8", "gate.memory=512M"}, 4).graph.admission_items == 8);
  CHECK_THROWS_WITH_AS(resolved({"gate.memory=1M"}, 4),
                       "gate.memory is 1M, the smallest allowed value is 128M: two batches of 1 picture with a slab of "
                       "64M each; lower batch.size or gate.slab to use less memory",
                       UsageError);
}

TEST_CASE("a share is a number in (0, 1] or a percentage") {
  const auto share = [](const std::string& text) {
    Settings settings;
    settings.set("input.paths=x");
    settings.set("input.sample=" + text);
    return source_spec(parse_config(settings)).selection.sample;
  };
  CHECK(share("1%") == doctest::Approx(0.01));
  CHECK(share("0.25") == doctest::Approx(0.25));
  CHECK(share("100%") == doctest::Approx(1));
  for (const char* wrong : {"", "%", "0", "0%", "101%", "1.5", "-1%", "nan", "1x", "1%%"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(share(wrong), UsageError);
  }
}

TEST_CASE("every view has the options of its rule, else the recipe's") {
  Settings settings;
  settings.set("models.detector=all.pkg");  // its old name
  settings.set("detect.conf=0.4");
  settings.set_views({{"a", "a/**", {{"detect", {{"model", {"a.pkg"}}, {"conf", {"0.5"}}}}}}, {"b", "b/**", {}}},
                     "test");
  const Config config = parse_config(settings);
  CHECK(config.notes == std::vector<std::string>{"--set models.detector: models.detector is called detect.model now"});
  const auto views = planned_views(config, {"a", "b"});
  REQUIRE(views.size() == 2);
  const auto detect = [&](std::size_t view) { return views[view].chain->options<Detect>(); };
  CHECK(detect(0).model == "a.pkg");
  CHECK(detect(0).conf == 0.5);
  CHECK(detect(1).model == "all.pkg");
  CHECK(detect(1).conf == 0.4);
  CHECK((*config.results)["views"][0]["options"].dump() == R"({"detect":{"conf":"0.5"}})");
  CHECK_FALSE((*config.results)["views"][1].contains("options"));
  CHECK_FALSE((*config.results)["options"]["detect"].contains("model"));
}

TEST_CASE("a stage that is in a recipe twice with two names has these names in messages") {
  const std::vector<StageEntry> table = stage_table();
  CHECK_THROWS_WITH_AS(Chain({"decode", "preprocess", "detect", RecipeStage("again", "detect")},
                             [](const std::string&) { return OptionValues{}; }),
                       doctest::Contains("'detect' and 'again' both write 'detections'"), UsageError);
}

}  // namespace
}  // namespace millrace
