// The command lines of `millrace run` and `millrace estimate`.
#include "apps/command_line.hpp"

#include <doctest/doctest.h>

#include "apps/estimate.hpp"
#include "run/run_options.hpp"
#include "stages/encode.hpp"
#include "stages/sinks/sink.hpp"

namespace millrace {
namespace {

std::string failure(const std::vector<std::string>& arguments) {
  try {
    parse_run(arguments);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("short options are settings") {
  const auto run =
      parse_run({"--input",  "a",           "b,c",           "-i",       "d",        "--output", "out", "--detector",
                 "x.pkg",    "--segmenter", "y.pkg",         "--format", "coco,png", "--limit",  "5",   "--every=2",
                 "--sample", "1%",          "--follow-dirs", "-0"});
  const auto input = run.settings.parse<InputOptions>();
  CHECK(input.paths == std::vector<std::string>{"a", "b,c", "d"});
  CHECK(input.limit == 5);
  CHECK(input.every == 2);
  CHECK(input.sample == "1%");
  CHECK(input.follow_dirs);
  CHECK(input.nul_separated);
  CHECK(run.settings.parse<OutputOptions>().folder == "out");
  CHECK(run.settings.text("detect.model") == "x.pkg");
  CHECK(run.settings.text("segment.model") == "y.pkg");
  const auto encode = parse_options<Encode::Options>(Encode::name, run.settings.values(Encode::name));
  CHECK(encode.format == std::vector<std::string>{"coco", "png"});
  CHECK_FALSE(run.dry_run);
  CHECK_FALSE(run.print_config);
  CHECK_FALSE(run.quiet);
  CHECK_FALSE(run.add_new);
}

TEST_CASE("stdin is an input, and the last --set wins") {
  const auto run = parse_run({"--input", "-", "--set", "batch.size=2", "--set", "batch.size=3", "-q", "--add-new"});
  CHECK(run.settings.parse<InputOptions>().paths == std::vector<std::string>{"-"});
  CHECK(run.settings.parse<BatchOptions>().size == 3);
  CHECK(run.quiet);
  CHECK(run.add_new);
}

TEST_CASE("wrong words are named, with the nearest right one") {
  CHECK(has(failure({"--ouput", "x"}), "did you mean '--output'?"));
  CHECK(has(failure({"--in", "x"}), "--in is not an option"));
  CHECK(has(failure({"--output"}), "--output"));
  CHECK(has(failure({"a.yaml", "b.yaml"}), "'b.yaml' is a second recipe"));
  CHECK(has(failure({"no_such.yaml"}), "no_such.yaml"));
  CHECK(has(failure({"--set", "detect.cnf=1"}), "did you mean 'conf'?"));
  CHECK(has(failure({"--limit", "1", "--limit", "2"}), "limit"));
  CHECK(has(failure({"--det", "x"}), "did you mean '--detector'?"));
  CHECK(has(failure({"--se", "x"}), "did you mean '--segmenter' or '--serve' or '--set'?"));
}

TEST_CASE("a value in the place of a recipe gets a hint on how to write values") {
  const std::string overlay = failure({"a.yaml", "--format", "coco", "overlay"});
  CHECK(has(overlay, "'overlay' is a second recipe"));
  CHECK(has(overlay, "--format coco,overlay"));
  CHECK(has(failure({"--format", "coco", "overlay", "a.yaml"}), "'overlay' is one of several recipes"));
  CHECK(has(failure({"--set", "detect.conf", "0.1"}), "--set detect.conf=0.1"));
  CHECK_FALSE(has(failure({"a.yaml", "b.yaml"}), "commas"));
  CHECK_FALSE(has(failure({"no_such.yaml"}), "commas"));
}

TEST_CASE("an option and a --set of the same key may not contradict each other") {
  const std::string text = failure({"--output", "z", "--set", "output.folder=zz"});
  for (const char* part : {"output.folder", "\"z\"", "--output", "\"zz\""}) CHECK(has(text, part));
  CHECK(has(failure({"--input", "a", "--set", "input.paths=b"}), "input.paths is set twice"));
  CHECK(has(failure({"--follow-dirs", "--set", "input.follow_dirs=no"}), "input.follow_dirs is set twice"));
  CHECK(failure({"--output", "z", "--set", "output.folder=z"}).empty());
}

TEST_CASE("the help names every option and every exit code") {
  const std::string help = run_help();
  for (const auto& sink : sink_table()) CHECK(has(help, sink.name));
  for (const char* word :
       {"--input", "--output", "--detector", "--segmenter", "--format", "--limit", "--every", "--sample",
        "--follow-dirs", "--null", "--set", "--print-config", "--dry-run", "--add-new", "--quiet", "130", "143"}) {
    CAPTURE(word);
    CHECK(has(help, word));
  }
}

TEST_CASE("an estimate has options of its own, and passes on those of the run") {
  const auto estimate = parse_estimate({"--input", "a", "--pictures", "30", "r.yaml", "--json", "--limit=5"});
  CHECK_EQ(estimate.pictures, 30);
  CHECK(estimate.json);
  CHECK(estimate.run == std::vector<std::string>{"--input", "a", "r.yaml", "--limit=5"});
  CHECK_EQ(parse_estimate({"--pictures=7"}).pictures, 7);
  CHECK_FALSE(parse_estimate({}).pictures);
  for (const std::string wrong : {"", "0", "-3", "x", "5x", "1000001", "99999999999999999999"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS(parse_estimate({"--pictures", wrong}), UsageError);
    CHECK_THROWS_AS(parse_estimate({"--pictures=" + wrong}), UsageError);
  }
}

TEST_CASE("a sample is spread over the whole input, in steps of a prime number of pictures") {
  for (const std::int64_t pictures : {1, 64, 65, 100, 127, 128, 4800, 1'000'003}) {
    CAPTURE(pictures);
    const SamplePlan plan = plan_sample(pictures, 64);
    CHECK_LE(plan.pictures, 64);
    CHECK_GE(plan.pictures, 1);
    // The last picture of the sample is one of the last `every` pictures of the input.
    CHECK_LT((plan.pictures - 1) * plan.every, pictures);
    CHECK_GE(plan.pictures * plan.every, pictures);
    if (pictures <= 64) CHECK_EQ(plan.every, 1);
    // Below 64 * 8 pictures, `every` can be as small as the number of cameras.
    for (const std::int64_t cameras : {2, 3, 4, 5, 6, 7}) {
      if (pictures > 64 * 8) CHECK_NE(plan.every % cameras, 0);
    }
  }
}

}  // namespace
}  // namespace millrace
