// The table and report.json of a hand-made run.
#include "apps/report_text.hpp"

#include <doctest/doctest.h>

#include <sstream>

#include "base/json.hpp"
#include "run/report.hpp"

namespace millrace {
namespace {

constexpr std::int64_t second = 1'000'000'000;

Reading reading(const std::string& name, int servers, std::int64_t items, double busy_s) {
  Reading it;
  it.name = name;
  it.servers = servers;
  it.items = items;
  it.busy_ns = static_cast<std::int64_t>(busy_s * second);
  it.queued_ns = 25 * second;
  it.starved_ns = 10 * second * servers;
  it.latency.add(2'000'000);
  it.latency.add(64'000'000);
  return it;
}
Reading reading(Unit unit, const std::string& name, int servers, std::int64_t items, double busy_s) {
  Reading it = reading(name, servers, items, busy_s);
  it.unit = unit;
  return it;
}

std::string text_of(const RunReport& report, int columns, bool colour) {
  return to_text(to_json(report), report.output_folder, columns, colour);
}

RunReport sample() {
  RunReport report;
  report.run = "20260101T000000Z-1";
  report.output_folder = "/data/out";
  report.state = "finished";
  report.planned = 1'234'567;
  report.plan_complete = true;
  report.counts.items = 1'234'567;
  report.counts.ok = 1'234'560;
  report.counts.failed[Reason::truncated] = 7;
  report.counts.objects = 9'876'543;
  report.counts.resumed = 1000;
  report.load_ns = 2 * second;
  report.warm_up_ns = second / 2;
  report.start = {second / 10, second / 4, {2 * second, second / 8, second / 20}};
  report.window.time_ns = 50 * second;
  report.window.committed = 5000;
  report.window.cores = 8;
  report.window.cpu_ns = 100 * second;
  report.window.without_credits.servers = 1;
  report.window.without_credits.busy_ns = 33 * second;
  report.read_bytes = std::int64_t{2'500'000} * 50;
  report.written_bytes = std::int64_t{4'600} * 50;
  report.window.resources = {
      {reading("read", 4, 5000, 3), {}},
      {reading(Unit::tasks, "workers", 2, 6250, 30),
       {reading("decode", 2, 5000, 25), reading(Unit::batches, "encode", 2, 1250, 5)}},
      {reading(Unit::batches, "lane", 3, 1250, 140),
       {reading(Unit::batches, "preprocess", 3, 1250, 5), reading(Unit::batches, "detect", 3, 1250, 95),
        reading(Unit::batches, "segment", 3, 1250, 30), reading(Unit::batches, "postprocess", 3, 1250, 10)},
       true},
      {reading("idle", 1, 0, 0), {}}};
  for (Reading* it : {&report.window.resources[1].total, &report.window.resources[1].parts[0]}) {
    it->measured_ns = it->busy_ns;
    it->no_core_ns = 10 * second;
  }
  report.verdict.kind = Verdict::Kind::stage;
  report.verdict.stage = "detect";
  report.verdict.sentence = "`detect` holds the run back: " + std::string(200, 'x') + " and so on for a while.";
  report.calls = {{"detector_calls", 5000}};
  return report;
}

TEST_CASE("the table is aligned, within the columns, and without trailing spaces") {
  for (int columns : {60, 100, 200}) {
    std::istringstream text(text_of(sample(), columns, false));
    std::size_t header = 0;
    for (std::string line; std::getline(text, line);) {
      CAPTURE(line);
      CHECK((line.empty() || line.back() != ' '));
      CHECK(line.find('\033') == std::string::npos);
      if (line.find("p50 ms") != std::string::npos) header = line.size();
      if (line.find("  read ") == 0 && line.find("/s") == std::string::npos) CHECK(line.size() == header);
      for (const char* row : {"  workers", "    decode", "    encode", "  lane", "    preprocess", "    detect"}) {
        if (line.starts_with(row)) CHECK(line.size() == header);
      }
    }
    CHECK(header == 79);  // a terminal of 80 columns has one column left
  }
}

TEST_CASE("a number keeps its percent sign when a sentence is wrapped") {
  RunReport report = sample();
  report.verdict.sentence.clear();
  for (int i = 0; i < 60; ++i)
    report.verdict.sentence += (i > 0 ? " " : "") + std::string(1 + static_cast<std::size_t>(i) % 7, 'a') + " 10 %";
  for (int columns = 40; columns < 100; ++columns) {
    const std::string text = text_of(report, columns, false);
    CHECK(text.find("\n%") == std::string::npos);
    CHECK(text.find(" \n") == std::string::npos);
  }
}

TEST_CASE("the headline, reasons, and where everything is") {
  const std::string text = text_of(sample(), 100, false);
  CHECK(text.find("1,234,560 ok, 7 failed of 1,234,567 pictures, 9,876,543 objects (1,000 were done before)\n") == 0);
  RunReport one = sample();
  one.planned = one.counts.items = one.counts.ok = one.counts.objects = one.counts.resumed = 1;
  one.counts.failed.clear();
  CHECK(text_of(one, 100, false).find("1 ok, 0 failed of 1 picture, 1 object (1 was done before; nothing") == 0);
  for (const char* part :
       {"failed, truncated: 7", "100.00 pictures/s over 50.0 s", "loading 2.0 s", "warm-up 500 ms",
        "start: streams 100 ms, memory plan 250 ms, first calls 125 ms, timing 50 ms", "lane x3", "    detect", "93 %",
        "cores: 2.0 of 8.0 used", "source without credits 33.0 s of 50.0 s;", "read 2.5 MB/s, results written 4.6 kB/s",
        "/data/out/segments", "/data/out/runs/20260101T000000Z-1/report.json"}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.find("idle") == std::string::npos);  // a resource that had nothing to do has no row
}

TEST_CASE("the report names the files of errors that have lines: of this attempt, of earlier ones, or both") {
  RunReport report = sample();
  const std::string now = "errors   /data/out/runs/20260101T000000Z-1/errors.jsonl\n";
  const std::string before = "/data/out/runs/*/errors.jsonl: failed pictures of earlier attempts\n";
  const auto has = [&](const std::string& part) { return text_of(report, 100, false).find(part) != std::string::npos; };
  CHECK(has("errors   " + before));
  CHECK_FALSE(has(now));
  report.failed_now = 3;
  CHECK(has(now + "         " + before));
  report.failed_now = 7;
  CHECK(has(now));
  CHECK_FALSE(has(before));
  report.counts.failed.clear();
  report.counts.ok = report.counts.items;
  report.failed_now = 0;
  CHECK_FALSE(has("errors.jsonl"));
}

TEST_CASE("a row shows its unit, utilisation, time without a core, quantiles and waiting") {
  const std::string text = text_of(sample(), 80, false);
  // 2 and 64 ms become the middles of their bins. The lane waits and starves as a whole, so its parts have no such values.
  // Only the workers have core times: 10 s without a core, in 100 s of two workers.
  for (const std::string row : {"  stage              items             util no core p50 ms p95 ms starved queue\n",
                                "  read x4            5,000 pictures     2 %       -   2.00  63.96    20 %   0.5\n",
                                "  workers x2         6,250 tasks       30 %    10 %   2.00  63.96    20 %   0.5\n",
                                "    decode           5,000 pictures    25 %    10 %   2.00  63.96    20 %   0.5\n",
                                "    encode           1,250 batches      5 %       -   2.00  63.96    20 %   0.5\n",
                                "  lane x3            1,250 batches     93 %       -   2.00  63.96    20 %   0.5\n",
                                "    preprocess       1,250 batches      3 %       -   2.00  63.96       -     -\n",
                                "    detect           1,250 batches     63 %       -   2.00  63.96       -     -\n",
                                "    segment          1,250 batches     20 %       -   2.00  63.96       -     -\n",
                                "    postprocess      1,250 batches      7 %       -   2.00  63.96       -     -\n"}) {
    CAPTURE(row);
    CHECK(text.find(row) != std::string::npos);
  }
}

TEST_CASE("one item is written as one") {
  RunReport report = sample();
  report.window.resources = {{reading("read", 1, 1, 3), {}},
                             {reading(Unit::tasks, "workers", 1, 1, 3), {}},
                             {reading(Unit::batches, "lane", 1, 1, 3), {}}};
  const std::string text = text_of(report, 80, false);
  for (const char* part :
       {"         1 picture      6 % ", "         1 task         6 % ", "         1 batch        6 % "}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
}

TEST_CASE("after a stop the report says how to complete the results") {
  RunReport report = sample();
  CHECK(text_of(report, 80, false).find("results  /data/out/segments\n") != std::string::npos);
  report.state = "stopped";
  CHECK(text_of(report, 80, false).find("results  /data/out/segments; the same command completes the .part files\n") !=
        std::string::npos);
}

TEST_CASE("times keep their column, long ones lose their fraction") {
  for (const auto& [ns, expected] : {std::pair{std::int64_t{50'000}, " 0.05 "},
                                     {std::int64_t{234'000'000}, " 23"},
                                     {std::int64_t{2'350'000'000}, " 23"}}) {
    RunReport report = sample();
    report.window.resources = {{reading("read", 4, 5000, 3), {}}};
    report.window.resources[0].total.latency = {};
    report.window.resources[0].total.latency.add(ns);
    std::istringstream text(text_of(report, 80, false));
    int rows = 0;
    for (std::string line; std::getline(text, line);) {
      if (!line.starts_with("  read x4 ")) continue;
      ++rows;
      CAPTURE(line);
      CHECK(line.size() == 79);
      CHECK(line.find(expected) != std::string::npos);
    }
    CHECK(rows == 1);
  }
}

TEST_CASE("report.json has the bottleneck, which holds the run back, and the busiest stage") {
  RunReport report = sample();
  report.verdict.thin = "a short run";
  auto verdict = to_json(report)["verdict"];
  CHECK(verdict["kind"] == "stage");
  CHECK(verdict["bottleneck"] == "detect");
  CHECK(verdict["busiest"] == "detect");
  CHECK(verdict["short_because"] == "a short run");
  report.verdict.kind = Verdict::Kind::input;
  verdict = to_json(report)["verdict"];
  CHECK(verdict["bottleneck"] == "input");
  CHECK(verdict["busiest"] == "detect");
  report.verdict.kind = Verdict::Kind::credits;
  CHECK(to_json(report)["verdict"]["bottleneck"] == "gate");
}

TEST_CASE("colours are closed on the line on which they began") {
  std::istringstream text(text_of(sample(), 100, true));
  bool bold = false;
  for (std::string line; std::getline(text, line);) {
    if (line.find("\033[1m") != std::string::npos) bold = true;
    if (line.find("\033[0m") != std::string::npos) bold = false;
    if (line.find("results") == 0) CHECK_FALSE(bold);
  }
  CHECK_FALSE(bold);
}

TEST_CASE("a run in which nothing was left to do has no table and divides nothing by zero") {
  RunReport report = sample();
  report.window = {};
  const std::string text = text_of(report, 100, false);
  CHECK(text.find("p50") == std::string::npos);
  CHECK(text.find("nan") == std::string::npos);
  auto json = to_json(report);
  json["run_window"].erase("machine");  // what the system does not provide is null
  for (const char* unknown :
       {"device_calls", "what_if", "prediction"}) {  // likewise without a device, and for a short run
    CHECK(json[unknown].is_null());
    json.erase(unknown);
  }
  for (const char* unknown : {"fill_s", "steady_s", "drain_s", "steady_pictures_per_s", "latency"}) {
    CHECK(json["run_window"][unknown].is_null());
    json["run_window"].erase(unknown);
  }
  for (const char* unknown : {"no_core", "other_cores", "gain_without_others", "memory_stall", "disk_stall", "gpu"}) {
    CHECK(json["verdict"][unknown].is_null());
    json["verdict"].erase(unknown);
  }
  CHECK(json.dump().find("null") == std::string::npos);  // nlohmann writes NaN as null
}

TEST_CASE("report.json holds the numbers of the table") {
  const auto json = to_json(sample());
  CHECK(json["items"]["planned"] == 1'234'567);
  CHECK(json["items"]["failed"]["truncated"] == 7);
  CHECK(json["items"]["resumed"] == 1000);
  CHECK(json["run_window"]["pictures_per_s"] == doctest::Approx(100));
  CHECK(json["run_window"]["cores_busy"] == doctest::Approx(0.25));
  CHECK(json["warm_up_s"] == doctest::Approx(0.5));
  CHECK(json["start"]["streams_s"] == doctest::Approx(0.1));
  CHECK(json["start"]["planning_s"] == doctest::Approx(0.25));
  CHECK(json["start"]["slowest_lane"]["load_s"] == doctest::Approx(2));
  CHECK(json["start"]["slowest_lane"]["first_calls_s"] == doctest::Approx(0.125));
  CHECK(json["start"]["slowest_lane"]["timing_s"] == doctest::Approx(0.05));
  CHECK(json["read_bytes"] == 125'000'000);
  CHECK(json["written_bytes"] == 230'000);
  CHECK(json["run_window"]["source"]["without_credits_s"] == doctest::Approx(33));
  const auto& workers = json["run_window"]["resources"][1];
  CHECK(workers["counts"] == "tasks");
  CHECK(workers["parts"][0]["counts"] == "pictures");
  CHECK(workers["parts"][1]["counts"] == "batches");
  for (const auto& part : workers["parts"]) {
    CHECK(part["mean_queue"] == doctest::Approx(0.5));
    CHECK(part["starved"] == doctest::Approx(0.2));
  }
  const auto& lane = json["run_window"]["resources"][2];
  CHECK(lane["counts"] == "batches");
  CHECK(lane["starved"] == doctest::Approx(0.2));
  CHECK(lane["p95_ms"] == doctest::Approx(64).epsilon(0.04));
  CHECK(lane["concurrency"] == 3);
  CHECK(lane["utilisation"] == doctest::Approx(140.0 / 150));
  CHECK(lane["mean_queue"] == doctest::Approx(0.5));
  CHECK(lane["p50_ms"] == doctest::Approx(2).epsilon(0.04));
  CHECK(lane["parts"].size() == 4);
  CHECK_FALSE(lane["parts"][0].contains("starved"));
  CHECK(json["calls"]["detector_calls"] == 5000);
  CHECK(json["load_s"] == doctest::Approx(2));
}

TEST_CASE("report.json has service times, bytes, and the phases of the run") {
  RunReport report = sample();
  report.stage_bytes = {{"read", 100}, {"decode", 2000}};
  Snapshot& window = report.window;
  window.moments = {2 * second, 40 * second, 7 * second, 100, 3400};
  window.credit_waits = {30 * second, second, 2 * second};
  const auto run = to_json(report)["run_window"];
  const auto& read = run["resources"][0];
  CHECK(read["bytes"] == 100);
  REQUIRE(read["times_ms"].size() == 2);
  CHECK(read["times_ms"][0][0].get<double>() == doctest::Approx(2).epsilon(0.065));
  CHECK(read["times_ms"][0][1] == 1);
  const auto& workers = run["resources"][1];
  CHECK(workers["bytes"].is_null());
  CHECK(workers["parts"][0]["bytes"] == 2000);
  CHECK(workers["parts"][1]["bytes"].is_null());
  CHECK(workers["no_core"] == doctest::Approx(1.0 / 3));
  CHECK(workers["waiting"] == doctest::Approx(2.0 / 3));  // neither on a core nor without one
  CHECK(read["waiting"].is_null());
  CHECK(run["resources"][2]["parts"][1]["peak_device_bytes"].is_null());
  CHECK(run["resources"][3]["p50_ms"].is_null());  // it had nothing to do
  CHECK(run["fill_s"] == 5);
  CHECK(run["steady_s"] == 33);
  CHECK(run["drain_s"] == 10);
  CHECK(run["steady_pictures_per_s"] == 100);
  CHECK(run["source"]["without_credits_by_limit_s"] ==
        nlohmann::json{{"gate.frames", 30.0}, {"read.ahead", 1.0}, {"gate.memory", 2.0}});
  window.moments = {};
  for (const char* unknown : {"fill_s", "steady_s", "drain_s", "steady_pictures_per_s"})
    CHECK(to_json(report)["run_window"][unknown].is_null());
}

TEST_CASE("the phases of a run are in the text if filling and draining hide its rate") {
  RunReport report = sample();  // 100 pictures/s over all
  report.window.moments = {0, 40 * second, 10 * second, 100, 3600};
  const std::string line =
      "  filling the pipeline took 10.0 s and draining it 10.0 s; in between, it made 116.67 pictures/s\n";
  CHECK(text_of(report, 100, false).find(line) != std::string::npos);
  report.window.moments.committed_at_last_admission = 3200;
  CHECK(text_of(report, 100, false).find("filling") == std::string::npos);
}

TEST_CASE("the text shows the changes that gain most") {
  RunReport report = sample();
  const double now = static_cast<double>(report.window.committed) * 1e9 / static_cast<double>(report.window.time_ns);
  report.what_if = {{"others=0", "no other programs", 2 * now, 1.8 * now, 2.2 * now},
                    {"segment x2", "`segment` twice as fast", 1.5 * now, 0.01 * now, 1.6 * now},
                    {"gate.frames=32", "gate.frames: 32", 1.01 * now, 0.9 * now, 1.1 * now}};
  const std::string text = text_of(report, 100, false);
  CHECK(text.find("if this changed") != std::string::npos);
  CHECK(text.find("  no other programs  ") < text.find("  `segment` twice as fast  "));
  const auto gain = [&](const char* shown) {  // its distance from the start of the line
    const auto at = text.find(shown);
    REQUIRE(at != std::string::npos);
    return at + std::string(shown).size() - text.rfind('\n', at);
  };
  CHECK(gain(" +100 %\n") == gain(" +50 %\n"));              // the intervals differ in length
  CHECK(text.find("gate.frames: 32") == std::string::npos);  // a gain of 1 % is none
  report.what_if = {{"gate.frames=32", "gate.frames: 32", now, 0.9 * now, 1.1 * now}};
  CHECK(text_of(report, 100, false).find("if this changed") == std::string::npos);
}

TEST_CASE("a run that measured nothing has a rate, and nulls") {
  RunReport report = sample();
  report.window.measured = false;
  report.window.resources.clear();
  const auto run = to_json(report)["run_window"];
  CHECK(run["pictures_per_s"] == doctest::Approx(100));
  CHECK(run["source"].is_null());
  CHECK(run["gate"]["mean_waiting_for_bytes"].is_null());
  CHECK(run["resources"] == nlohmann::json::array());
  const std::string text = text_of(report, 100, false);
  CHECK(text.find("100.00 pictures/s") != std::string::npos);
  CHECK(text.find("p50") == std::string::npos);
}

TEST_CASE("a failed run keeps its figures, but has no verdict") {
  RunReport report = sample();
  CHECK(to_json(report)["verdict"]["starved"] == 0);
  report.state = "failed";
  report.verdict = {};
  const auto json = to_json(report);
  CHECK(json["run_window"]["committed"] == 5000);
  CHECK(json["verdict"]["kind"] == "too_short");
  CHECK(json["verdict"]["sentence"] == "");
  for (const char* unknown : {"bottleneck", "utilisation", "starved", "gain_without_others"})
    CHECK(json["verdict"][unknown].is_null());
}

TEST_CASE("report.json compares the calls on devices with what stages declare") {
  RunReport report = sample();
  CHECK(to_json(report)["device_calls"].is_null());
  report.device_calls = DeviceCalls{40, 10, {40, 11, 22, 1}, {40, 10, 20, 0}};
  CHECK(to_json(report)["device_calls"] ==
        nlohmann::json{
            {"pictures", 40},
            {"batches", 10},
            {"uploads_per_picture", 1.0},
            {"downloads_per_batch", 1.1},
            {"waits_per_batch", 2.2},
            {"overflows_per_batch", 0.1},
            {"expected", {{"uploads_per_picture", 1.0}, {"downloads_per_batch", 1.0}, {"waits_per_batch", 2.0}}}});
  MemoryPlan plan;
  plan.stage_bytes = {{"detect", 500}};
  report.memory = {plan, plan};
  report.memory[1].stage_bytes["detect"] = 700;
  const auto json = to_json(report);
  CHECK(json["run_window"]["resources"][2]["parts"][1]["peak_device_bytes"] == 700);
  CHECK(json["run_window"]["resources"][2]["parts"][2]["peak_device_bytes"].is_null());
  CHECK(json["memory"][0]["stage_calls_bytes"]["detect"] == 500);
}

TEST_CASE("the report shows the sentences and files of reducers") {
  RunReport report = sample();
  CHECK(to_json(report)["reduced"] == nlohmann::json::object());
  report.reduced = {{"categories", "reduced/categories.json", {"objects, view front: 3 car"}}};
  const std::string text = text_of(report, 79, false);
  CHECK(text.find("\n  categories: objects, view front: 3 car\n") != std::string::npos);
  CHECK(text.find("\n         /data/out/reduced/categories.json\n") != std::string::npos);
  CHECK(to_json(report)["reduced"]["categories"] ==
        nlohmann::json{{"file", "reduced/categories.json"}, {"summary", {"objects, view front: 3 car"}}});
}

}  // namespace
}  // namespace millrace
