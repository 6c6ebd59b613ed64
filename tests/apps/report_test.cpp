// The table and report.json of a hand-made run.
#include "apps/report.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <sstream>

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
  it.latency.add(2'000'000);
  return it;
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
  report.window.time_ns = 50 * second;
  report.window.committed = 5000;
  report.window.cores = 8;
  report.window.cpu_ns = 100 * second;
  report.window.resources = {
      {reading("read", 4, 5000, 3), {}},
      {reading("lane", 3, 5000, 140), {reading("detect", 3, 5000, 100), reading("segment", 3, 5000, 40)}},
      {reading("idle", 1, 0, 0), {}}};
  report.verdict.sentence = "`detect` holds the run back: " + std::string(200, 'x') + " and so on for a while.";
  report.calls = {{"detector_calls", 5000}};
  return report;
}

TEST_CASE("the table is aligned, within the columns, and without trailing spaces") {
  for (int columns : {60, 100, 200}) {
    std::istringstream text(to_text(sample(), columns, false));
    std::size_t header = 0;
    for (std::string line; std::getline(text, line);) {
      CAPTURE(line);
      CHECK((line.empty() || line.back() != ' '));
      CHECK(line.find('\033') == std::string::npos);
      if (line.find("p50 ms") != std::string::npos) header = line.size();
      if (line.find("  read ") == 0 && line.find("/s") == std::string::npos) CHECK(line.size() == header);
      if (line.find("  lane") == 0) CHECK(line.size() == header);
    }
    CHECK(header > 0);
    CHECK(header <= 100);
  }
}

TEST_CASE("the headline, reasons, and where everything is") {
  const std::string text = to_text(sample(), 100, false);
  CHECK(text.find("1,234,560 ok, 7 failed of 1,234,567 pictures, 9,876,543 objects (1,000 were done before)\n") == 0);
  for (const char* part : {"failed, truncated: 7", "100.00 pictures/s over 50.0 s", "loading 2.0 s", "warm-up 500 ms",
                           "lane x3", "    detect", "93 %", "cores 2.0 of 8.0 busy", "/data/out/segments",
                           "/data/out/runs/20260101T000000Z-1/report.json"}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  CHECK(text.find("idle") == std::string::npos);  // a resource that had nothing to do has no row
}

TEST_CASE("colours are closed on the line on which they began") {
  std::istringstream text(to_text(sample(), 100, true));
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
  const std::string text = to_text(report, 100, false);
  CHECK(text.find("p50") == std::string::npos);
  CHECK(text.find("nan") == std::string::npos);
  const std::string json = to_json(report).dump();
  CHECK(json.find("null") == std::string::npos);  // what nlohmann makes of NaN
}

TEST_CASE("report.json holds the numbers of the table") {
  const auto json = to_json(sample());
  CHECK(json["items"]["planned"] == 1'234'567);
  CHECK(json["items"]["failed"]["truncated"] == 7);
  CHECK(json["items"]["resumed"] == 1000);
  CHECK(json["run_window"]["pictures_per_s"] == doctest::Approx(100));
  CHECK(json["run_window"]["cores_busy"] == doctest::Approx(0.25));
  const auto& lane = json["run_window"]["resources"][1];
  CHECK(lane["concurrency"] == 3);
  CHECK(lane["utilisation"] == doctest::Approx(140.0 / 150));
  CHECK(lane["mean_queue"] == doctest::Approx(0.5));
  CHECK(lane["p50_ms"] == doctest::Approx(2).epsilon(0.04));
  CHECK(lane["parts"].size() == 2);
  CHECK_FALSE(lane["parts"][0].contains("starved"));
  CHECK(json["calls"]["detector_calls"] == 5000);
  CHECK(json["load_s"] == doctest::Approx(2));
}

}  // namespace
}  // namespace millrace
