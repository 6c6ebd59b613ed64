// The parts of `millrace run --serve`: address, access, metrics, and the state of a run.
#include <doctest/doctest.h>

#include <fstream>
#include <memory>
#include <string>

#include "apps/serve/access.hpp"
#include "apps/serve/address.hpp"
#include "apps/serve/live_run.hpp"
#include "apps/serve/metrics.hpp"
#include "base/json.hpp"
#include "run/host_memory.hpp"
#include "run/report.hpp"
#include "stages/options.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/sanitized.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

TEST_CASE("serve: a port alone is on loopback; addresses are numbers, and IPv6 is in brackets") {
  for (const auto& [text, host, port, loopback] : {std::tuple{"8080", "127.0.0.1", 8080, true},
                                                   {"0", "127.0.0.1", 0, true},
                                                   {"localhost:1", "127.0.0.1", 1, true},
                                                   {"127.9.9.9:65535", "127.9.9.9", 65535, true},
                                                   {"[::1]:8080", "::1", 8080, true},
                                                   {"0.0.0.0:80", "0.0.0.0", 80, false},
                                                   {"128.0.0.1:80", "128.0.0.1", 80, false},
                                                   {"[::]:80", "::", 80, false},
                                                   {"[::ffff:127.0.0.1]:80", "::ffff:127.0.0.1", 80, false}}) {
    CAPTURE(text);
    const ServeAddress address = parse_serve_address(text);
    CHECK(address.host == host);
    CHECK(address.port == port);
    CHECK(address.loopback == loopback);
  }
  for (const char* wrong :
       {"", "x", "-1", "65536", "80x", " 80", "127.0.0.1", "127.0.0.1:", ":80", "::1:80", "[::1]", "[]:80",
        "[127.0.0.1]:80", "example.org:80", "127.0.0.1.1:80", "1.2.3:80", "[fe80::1%lo]:80", "http://127.0.0.1:80"}) {
    CAPTURE(wrong);
    CHECK_THROWS_AS((void)parse_serve_address(wrong), UsageError);
  }
  CHECK(url_of(parse_serve_address("8080")) == "http://127.0.0.1:8080/");
  CHECK(url_of(parse_serve_address("[::1]:8080")) == "http://[::1]:8080/");
  CHECK_FALSE(has(url_of(parse_serve_address("0.0.0.0:8080")), "0.0.0.0"));
  CHECK_FALSE(has(url_of(parse_serve_address("[::]:8080")), "::"));
}

TEST_CASE("serve: loopback needs no token, other addresses get a random one, and that of the user must be long") {
  const ServeAddress here = parse_serve_address("80"), everywhere = parse_serve_address("0.0.0.0:80");
  CHECK(serve_token(here, nullptr).empty());
  const std::string token = serve_token(everywhere, nullptr);
  CHECK(token.size() == 32);
  CHECK(token.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(serve_token(everywhere, nullptr) != token);
  CHECK(serve_token(here, "0123456789abcdef") == "0123456789abcdef");
  for (const char* wrong : {"", "0123456789abcde", "0123456789abcde&", "0123456789abcde ", "0123456789abcd\xC3\xA9"})
    CHECK_THROWS_AS((void)serve_token(here, wrong), UsageError);
}

/// Status of the refusal; 0 if the request may read.
int refused(const ServeAccess& access, const HttpRequest& request) {
  const auto reply = access.refusal(request);
  return reply ? reply->status : 0;
}

TEST_CASE("serve: a token in the header wins over one in the query") {
  const ServeAccess access(false, "right-right-right");
  CHECK(refused(access, {}) == 401);
  CHECK(refused(access, {.authorization = "Bearer right-right-right"}) == 0);
  CHECK(refused(access, {.query = {{"token", "right-right-right"}}}) == 0);
  CHECK(refused(access, {.query = {{"token", "right-right-right"}}, .authorization = "Bearer wrong"}) == 401);
  CHECK(refused(access, {.authorization = "right-right-right"}) == 401);
  CHECK(refused(access, {.authorization = "Bearer "}) == 401);
}

TEST_CASE("serve: on loopback the name in the URL is that of this machine") {
  const ServeAccess access(true, "");
  for (const char* host : {"localhost", "LOCALHOST:1", "127.0.0.1:8080", "127.255.0.1", "[::1]", "[::1]:80"})
    CHECK(refused(access, {.host = host}) == 0);
  for (const char* host : {"", "evil", "localhost.evil", "127.0.0.1.evil:80", "[::1", "[::2]", "127.1", "0.0.0.0"})
    CHECK(refused(access, {.host = host}) == 403);
}

RunReport sample_report() {
  RunReport report;
  report.run = "20260101T000000Z-1";
  report.state = "running";
  report.counts.items = 5;
  report.counts.ok = 3;
  report.counts.failed[Reason::empty] = 2;
  report.window.planned = 6;
  report.window.time_ns = 2'500'000'000;
  report.window.machine.busy_ns = 1'500'000'000;
  Reading read;
  read.name = "read";
  read.servers = 4;
  read.busy_ns = 1'250'000'000;
  Reading stage = read;
  stage.name = "a\"b\\c\nd\xff";
  stage.items = 12'345'678'901;
  report.window.resources = {{.total = read, .parts = {}}, {.total = read, .parts = {stage}}};
  report.window.resources[1].total.name = "workers";
  return report;
}

TEST_CASE("metrics: labels are escaped, numbers are exact, and what is not known is left out") {
  const std::string text = metrics_of(sample_report(), "running");
  CHECK(has(text, "millrace_stage_items_total{stage=\"a\\\"b\\\\c\\nd\uFFFD\",resource=\"workers\"} 12345678901\n"));
  CHECK(has(text, "millrace_stage_busy_seconds_total{stage=\"read\",resource=\"read\"} 1.25\n"));
  CHECK(has(text, "millrace_pictures_total{outcome=\"failed\"} 2\n"));
  CHECK(has(text, "millrace_failed_pictures_total{reason=\"empty\"} 2\n"));
  CHECK(has(text, "millrace_machine_cpu_seconds_total{mode=\"busy\"} 1.5\n"));
  CHECK_FALSE(has(text, "mode=\"stolen\""));         // the system does not tell
  CHECK_FALSE(has(text, "no_core_seconds_total{"));  // not measured
  CHECK(has(text, "millrace_state{state=\"running\"} 1\n"));
  CHECK(has(text, "millrace_state{state=\"failed\"} 0\n"));
  RunReport loading = sample_report();
  loading.window = {};
  CHECK_FALSE(has(metrics_of(loading, "running"), "millrace_run_seconds_total"));
  CHECK(has(metrics_of_start("starting"), "millrace_state{state=\"starting\"} 1\n"));
}

TEST_CASE("report so far: what only the end of a run shows is null, and so is everything before its first picture") {
  const Json running = to_json(sample_report());
  for (const char* key : {"gpus", "side_outputs", "reduced", "what_if", "prediction"}) CHECK(running[key].is_null());
  CHECK(running["run_window"]["wall_s"] == 2.5);
  RunReport loading = sample_report();
  loading.window = {};
  const Json before = to_json(loading);
  CHECK(before["run_window"].is_null());
  for (const auto& [key, value] : before["verdict"].items()) CHECK(value.is_null());
}

Json status_of(LiveRun& run) {
  const auto reply = run.answer({.path = "/status.json"});
  REQUIRE(reply);
  return Json::parse(*reply->body);
}

/// A run that has been accepted, with its files.
struct Attempt {
  TemporaryFolder folder;
  ProgressSample sample{};
  std::string timeline{};  // of the newest batches
  LiveRun run{"out", 20};  // few points, so that many states are quick
  Attempt() {
    sample.snapshot.planned = 1;
    run.accepted(folder.path());
    run.began([this] { return sample; });
    run.reports([] { return sample_report(); }, [this] { return timeline; });
  }
  void second() {
    sample.snapshot.time_ns += 1'000'000'000;
    sample.snapshot.committed += 5;
    sample.done += 5;
    run.tick();
  }
};

TEST_CASE("live run: a request for a later state waits for the next tick, and for none after the end") {
  Attempt attempt;
  LiveRun& run = attempt.run;
  const Json first = status_of(run);
  const HttpRequest next{.path = "/status.json", .query = {{"after", first["version"].dump()}}};
  CHECK_FALSE(run.answer(next));
  CHECK(run.answer({.path = "/status.json", .query = {{"after", "999"}}}));  // the state of another run
  CHECK(run.answer({.path = "/status.json", .query = {{"after", "x"}}}));
  attempt.second();
  CHECK(run.answer(next));
  run.ended();
  RunReport report = sample_report();
  report.state = "finished";
  run.finished(report);
  const Json last = status_of(run);
  CHECK(run.answer({.path = "/status.json", .query = {{"after", last["version"].dump()}}}));
  CHECK(run.answer({.path = "/none"})->status == 404);
}

TEST_CASE("live run: the timeline has the newest batches, and at the end those of the file") {
  Attempt attempt;
  CHECK(status_of(attempt.run)["timeline"].is_null());
  const auto with_batches = [](const char* batches) {
    return std::string(
               R"({"version":1,"lanes":1,"stages":["detect"],"views":["default"],"begun_s":1,"ended_s":3,"cut":null,)") +
           R"("batches":[)" + batches + "]}";
  };
  attempt.timeline = with_batches("[0,7,4,0,1.5,20]");
  attempt.second();
  const Json status = status_of(attempt.run);
  CHECK(status["timeline"]["batches"] == Json{{0, 7, 4, 0, 1.5, 20}});
  CHECK(status["timeline"]["stages"] == Json{"detect"});
  attempt.run.ended();
  CHECK(status_of(attempt.run)["timeline"]["batches"].size() == 1);  // while the run completes its files
  std::ofstream(attempt.folder.path() + "/timeline.json") << with_batches("[0,6,4,0,1.2,20],[0,7,4,0,1.5,20]");
  RunReport report = sample_report();
  report.state = "finished";
  attempt.run.finished(report);
  CHECK(status_of(attempt.run)["timeline"]["batches"].size() == 2);
}

TEST_CASE("live run: the rate is that of the last 10 s, and rows of resources.csv come as they are written") {
  Attempt attempt;
  CHECK(status_of(attempt.run)["progress"].is_null());  // no sample yet
  std::ofstream csv(attempt.folder.path() + "/resources.csv");
  csv << "seconds,cores_busy\n1,0.5\n2,1." << std::flush;
  for (int i = 0; i < 3; ++i) attempt.second();
  Json status = status_of(attempt.run);
  CHECK(status["progress"]["pictures_per_s"] == 5);
  CHECK(status["progress"]["done"] == 15);
  CHECK(status["series"]["time"] == Json{1});  // the second row is not complete
  csv << "25\n3,1\n" << std::flush;
  attempt.second();
  status = status_of(attempt.run);
  CHECK(status["series"]["time"] == Json{1, 2, 3});
  CHECK(status["series"]["columns"][0]["points"] == Json{0.5, 1.25, 1});
}

TEST_CASE("live run: the report stays when the run has ended, until the last one comes") {
  Attempt attempt;
  attempt.run.ended();
  attempt.run.tick();
  CHECK(status_of(attempt.run)["report"]["run"] == "20260101T000000Z-1");
  attempt.run.failed("the disk is full");
  const Json status = status_of(attempt.run);
  CHECK(status["state"] == "failed");
  CHECK(status["error"] == "the disk is full");
  LiveRun refused("out");
  refused.failed("no");
  CHECK(status_of(refused)["report"].is_null());
  CHECK(has(*refused.answer({.path = "/"})->body, "No picture is in the pipeline yet."));
}

TEST_CASE("live run: 10,000 states do not grow its memory") {
  if (sanitized) {
    MESSAGE("skipped: sanitizers keep memory of their own");
    return;
  }
  Attempt attempt;
  std::ofstream csv(attempt.folder.path() + "/resources.csv");
  csv << "seconds,cores_busy,pictures\n";
  std::int64_t before = 0;
  constexpr int states = 12'000;
  for (int i = 1; i <= states; ++i) {
    csv << i << "," << i % 7 << "," << i * 5 << std::endl;
    attempt.second();
    REQUIRE(attempt.run.answer({.path = "/status.json"}));
    if (i == 2'000) before = resident_memory().value_or(0);
  }
  CHECK(status_of(attempt.run)["series"]["rows"] == states);
  CHECK(resident_memory().value_or(0) - before < (std::int64_t{4} << 20));
}

}  // namespace
}  // namespace millrace
