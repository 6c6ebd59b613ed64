// The parts of report.html, and reading an attempt back.
#include "apps/page/report_page.hpp"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "apps/attempt.hpp"
#include "apps/page/series.hpp"
#include "apps/report_text.hpp"
#include "base/json.hpp"
#include "io/files/files.hpp"
#include "io/files/lock.hpp"
#include "io/results/segments_manifest.hpp"
#include "run/report.hpp"
#include "stages/options.hpp"
#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

void write(const std::string& file, const std::string& text) { std::ofstream(file) << text; }

Json series_of(const std::string& csv, std::size_t most_points = 400) {
  std::istringstream stream(csv);
  return thinned_csv(stream, most_points);
}

/// An output folder with attempts.
class Output {
 public:
  void attempt(const std::string& name, const std::string& report) const {
    std::filesystem::create_directories(path() + "/runs/" + name);
    if (!report.empty()) write(path() + "/runs/" + name + "/report.json", report);
  }
  std::string path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

std::string report_named(const std::string& name) {
  RunReport report;
  report.run = name;
  report.state = "finished";
  return to_json(report).dump();
}

TEST_CASE("JSON in a script element cannot end it, and reads back as the same value") {
  const Json hostile{{"</script><!--", "<script>alert(1)</script> \" ' \\ & \n \x01 \u2028 \u202e"}};
  const std::string text = json_for_script(hostile);
  for (const char letter : text) {
    CHECK(static_cast<unsigned char>(letter) < 128);
    CHECK(letter >= ' ');
    CHECK((letter != '<' && letter != '>' && letter != '&'));
  }
  CHECK(Json::parse(text) == hostile);
  CHECK(Json::parse(json_for_script("\xff\xfe!")) == "\uFFFD\uFFFD!");
}

TEST_CASE("text in the page cannot be markup") {
  CHECK(escaped_html("a < b && \"c\" > d</pre>") == "a &lt; b &amp;&amp; \"c\" &gt; d&lt;/pre&gt;");
}

TEST_CASE("rows become points; empty fields are null, and columns without values are left out") {
  const Json series = series_of("seconds,a,b,c\n1,0.5,,2\n2,1.5,,\n3,2.5,,4\n");
  CHECK(series["rows"] == 3);
  CHECK(series["rows_per_point"] == 1);
  CHECK(series["time"] == Json{1, 2, 3});
  CHECK(series["columns"] ==
        Json::parse(R"([{"name": "a", "mean": 1.5, "low": 0.5, "high": 2.5, "points": [0.5, 1.5, 2.5]},
                        {"name": "c", "mean": 3, "low": 2, "high": 4, "points": [2, null, 4]}])"));
}

TEST_CASE("many rows are thinned: lowest, mean and highest of each point are those of its rows") {
  std::string csv = "seconds,ramp,spike\n";
  constexpr int rows = 100'000;
  for (int i = 1; i <= rows; ++i)
    csv += std::to_string(i) + "," + std::to_string(i) + "," + (i == 70'001 ? "9" : "1") + "\n";
  const Json series = series_of(csv, 400);
  const auto per_point = series["rows_per_point"].get<int>();
  const auto points = series["time"].size();
  CHECK(points >= 400);
  CHECK(points <= 800);
  CHECK(per_point * static_cast<int>(points) >= rows);
  CHECK(series["rows"] == rows);
  for (std::size_t i = 0; i + 1 < points; ++i) {
    const double first = 1 + static_cast<double>(i) * per_point;
    const double last = first + per_point - 1;
    const Json& point = series["columns"][0]["points"][i];
    CHECK(point[0].get<double>() == doctest::Approx(first).epsilon(0.001));
    CHECK(point[1].get<double>() == doctest::Approx((first + last) / 2).epsilon(0.001));
    CHECK(point[2].get<double>() == doctest::Approx(last).epsilon(0.001));
  }
  const Json& spike = series["columns"][1];
  CHECK(spike["high"] == 9);
  CHECK(spike["low"] == 1);
  int peaks = 0;
  for (const Json& point : spike["points"]) peaks += point[2] == 9 ? 1 : 0;
  CHECK(peaks == 1);
}

TEST_CASE("the count of pictures becomes a rate; it is not known before the first picture") {
  const Json series = series_of("seconds,pictures\n1,\n2,0\n3,10\n5,40\n");
  CHECK(series["columns"][0]["name"] == "pictures_per_s");
  CHECK(series["columns"][0]["points"] == Json{nullptr, nullptr, 10, 15});
  CHECK(series["columns"][0]["mean"].get<double>() == doctest::Approx(40.0 / 3).epsilon(0.001));
}

TEST_CASE("the short last row of a run is no peak, but counts for the mean") {
  const Json series = series_of("seconds,a\n1,1\n2,1\n2.1,11\n");
  CHECK(series["time"] == Json{1, 2.1});
  CHECK(series["columns"][0]["high"] == 1);
  CHECK(series["columns"][0]["mean"].get<double>() == doctest::Approx((1 + 1 + 1.1) / 2.1).epsilon(0.001));
  // A run of a tenth of a second has only this row.
  CHECK(series_of("seconds,a\n0.1,11\n")["columns"][0]["high"] == 11);
}

TEST_CASE("damaged rows and a clock that jumps back are left out; another file is no series") {
  const Json series = series_of("seconds,a\n1,1\nx,2\n2,2,2\n3\n1,7\n-5,7\n4,nan\n5,1e999\n6,3\r\n7,4");
  CHECK(series["time"] == Json{1, 4, 5, 6, 7});
  CHECK(series["columns"][0]["points"] == Json{1, nullptr, nullptr, 3, 4});
  CHECK(series_of("").is_null());
  CHECK(series_of("hello\nworld\n").is_null());
}

TEST_CASE("the newest attempt is the one that started last, and --run names another") {
  const Output output;
  for (const char* name : {"20260101T000000Z-10", "20260101T000000Z-9", "20251231T235959Z-11"})
    output.attempt(name, report_named(name));
  CHECK(read_attempt(output.path(), "").report["run"] == "20260101T000000Z-10");
  const Attempt named = read_attempt(output.path(), "20251231T235959Z-11");
  CHECK(named.report["run"] == "20251231T235959Z-11");
  CHECK(named.folder == output.path() + "/runs/20251231T235959Z-11");
  CHECK_THROWS_AS(read_attempt(output.path(), "20250101T000000Z-1"), UsageError);
  CHECK_THROWS_AS(read_attempt(output.path(), "../runs/20260101T000000Z-9"), UsageError);
  CHECK_THROWS_AS(read_attempt(output.path() + "/none", ""), UsageError);
}

TEST_CASE("a report that is missing, damaged or of another version is refused") {
  const Output output;
  output.attempt("20260101T000000Z-1", report_named("20260101T000000Z-1"));
  output.attempt("20260102T000000Z-1", "");
  CHECK_THROWS_WITH_AS(read_attempt(output.path(), ""),
                       doctest::Contains("the newest one with a report is 20260101T000000Z-1"), UsageError);
  {
    const FolderLock lock(output.path());
    CHECK_THROWS_AS(read_attempt(output.path(), ""), LockedError);
    CHECK_NOTHROW(read_attempt(output.path(), "20260101T000000Z-1"));
  }
  for (const char* damaged : {"", "{\"schema\": 1", "[]", "{}", "\xff"}) {
    CAPTURE(damaged);
    output.attempt("20260103T000000Z-1", "x");
    write(output.path() + "/runs/20260103T000000Z-1/report.json", damaged);
    CHECK_THROWS_AS(read_attempt(output.path(), ""), ResultsDamaged);
  }
  output.attempt("20260103T000000Z-1", R"({"schema": 2})");
  CHECK_THROWS_WITH_AS(read_attempt(output.path(), ""), doctest::Contains("schema 2"), OutputMismatchError);
}

TEST_CASE("a report from elsewhere cannot control the terminal") {
  using Json = nlohmann::json;
  Json report, expected;
  report["notes"] = {"\x1b[2J", "C:\\x", "\xc2\x9b", 3};
  expected["notes"] = {"\\x1b[2J", "C:\\x", "\\u009b", 3};
  report["\a"] = nullptr;
  expected["\\x07"] = nullptr;
  CHECK(for_terminal(report) == expected);
}

TEST_CASE("a copy of an attempt is no attempt, and deep JSON is damage, not a crash") {
  const TemporaryFolder output;
  for (const char* name : {"20260101T000000Z-1", "backup", "lost+found"})
    std::filesystem::create_directories(output.path() + "/runs/" + name);
  const std::string file = output.path() + "/runs/20260101T000000Z-1/report.json";
  std::ofstream(file) << R"({"schema": 1, "run": "newest"})";
  std::ofstream(output.path() + "/runs/backup/report.json") << R"({"schema": 1, "run": "copy"})";
  CHECK(read_attempt(output.path(), "").report["run"] == "newest");
  std::ofstream(file) << R"({"schema": )" << std::string(1'000'000, '[') << std::string(1'000'000, ']') << "}";
  CHECK_THROWS_AS(read_attempt(output.path(), ""), OutputMismatchError);
  std::ofstream(file) << R"({"schema": 1, "x": )" << std::string(1'000'000, '[') << std::string(1'000'000, ']') << "}";
  CHECK(read_attempt(output.path(), "").report.dump().size() < 1000);
}

TEST_CASE("the page has the data of the attempt, and is complete without its other files") {
  const Output output;
  const std::string name = "20260101T000000Z-1";
  output.attempt(name, report_named(name));
  const Attempt attempt = read_attempt(output.path(), "");
  const auto data_of = [](const std::string& page) {
    const std::string open = "id=\"data\">";
    const auto from = page.find(open) + open.size();
    return Json::parse(page.substr(from, page.find('<', from) - from));
  };
  const Json bare = data_of(report_page(attempt.report, attempt.folder, "text"));
  CHECK(bare["report"] == attempt.report);
  CHECK(bare["series"].is_null());
  CHECK(bare["run"].is_null());
  CHECK(bare["errors"] == Json::array());
  CHECK(bare["timeline"].is_null());

  write(attempt.folder + "/resources.csv", "seconds,cores_busy\n1,0.5\n");
  write(attempt.folder + "/run.json", R"({"tool": "millrace 9", "started": "now", "config": "a: 1  # default\n"})");
  write(
      attempt.folder + "/timeline.json",
      R"({"version": 1, "lanes": 1, "stages": ["detect"], "views": ["default"], "begun_s": 0, "ended_s": 1, "cut": null,
            "batches": [[0, 0, 1, 0, 0.5, 10]]})");
  std::string errors;
  for (int i = 0; i < 1000; ++i)
    errors += R"({"id": 1, "path": "a.jpg", "stage": "decode", "reason": "empty", "detail": "no bytes"})"
              "\n";
  errors.replace(0, 1, R"({"path_b64": "Yf9iCg==",)");
  write(attempt.folder + "/errors.jsonl", "half a line\n" + errors);
  const std::string page = report_page(attempt.report, attempt.folder, "a < b");
  const Json full = data_of(page);
  CHECK(full["series"]["columns"][0]["name"] == "cores_busy");
  CHECK(full["run"] == Json{{"tool", "millrace 9"}, {"config", "a: 1  # default\n"}});
  CHECK(full["timeline"]["batches"] == Json::parse("[[0, 0, 1, 0, 0.5, 10]]"));
  CHECK(full["errors"].size() == 200);
  CHECK(full["errors"][0]["path"] == "a\\xffb\\n");  // the exact bytes, printable
  CHECK(full["errors"][1] ==
        Json::parse(R"({"path": "a.jpg", "stage": "decode", "reason": "empty", "detail": "no bytes"})"));
  CHECK(page.find("<pre>a &lt; b</pre>") != std::string::npos);
  CHECK(page.find("sourceMappingURL") == std::string::npos);
  for (const char* unfilled : {"@STYLE", "@SCRIPT", "@DATA", "@LICENCE", "@TEXT", "@CHARTS", "@LIBRARY"})
    CHECK(page.find(unfilled) == std::string::npos);
}

TEST_CASE("long paths and messages are shortened in the page") {
  const Output output;
  output.attempt("20260101T000000Z-1", report_named("20260101T000000Z-1"));
  const Attempt attempt = read_attempt(output.path(), "");
  const std::string line =
      Json{{"path", std::string(4000, 'p')}, {"stage", "s"}, {"reason", "r"}, {"detail", std::string(100'000, 'd')}}
          .dump() +
      "\n";
  std::string errors;
  for (int i = 0; i < 300; ++i) errors += line;
  write(attempt.folder + "/errors.jsonl", errors);
  CHECK(report_page(attempt.report, attempt.folder, "").size() < 1'000'000);
}

TEST_CASE("the text of a report that was read back is the text that the run printed; what is not known is no number") {
  RunReport report;
  report.run = "20260101T000000Z-1";
  report.state = "finished";
  report.output_folder = "/data/out";
  report.side_outputs = {"overlay"};
  report.planned = 10;
  report.plan_complete = true;
  report.counts.ok = 8;
  report.counts.failed[Reason::empty] = 2;
  report.failed_now = 1;
  report.scan.videos.add("a.mp4");
  report.window.time_ns = 1'234'567'891;
  report.window.committed = 10;
  report.window.cores = 2;
  report.window.cpu_ns = 987'654'321;
  Reading reading;
  reading.name = "read";
  reading.servers = 4;
  reading.items = 10;
  reading.busy_ns = 123'456'789;
  reading.measured_ns = 123'456'789;
  reading.no_core_ns = 23'456'789;
  reading.starved_ns = 23'456;
  reading.queued_ns = 33'456'789;
  reading.latency.add(1'234'567);
  report.window.resources = {{reading, {}}};
  report.verdict.sentence = "Too short to judge: 10 pictures came out.";
  report.notes = {"a note"};
  report.reduced = {{"categories", "reduced/categories.json", {"3 cars"}}};
  const std::string text = to_text(to_json(report), "/data/out", 79, false);
  CHECK(to_text(Json::parse(to_json(report).dump(2)), "/data/out", 79, false) == text);
  for (const char* part : {"skipped: 1 video (not read yet: a.mp4)", "out/overlay\n",
                           "runs/20260101T000000Z-1/errors.jsonl", "categories: 3 cars", "note: a note"}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
  Json figures = to_json(report);
  figures["run_window"]["steady_pictures_per_s"] = 9.5;
  figures["run_window"]["fill_s"] = 0.25;
  figures["run_window"]["drain_s"] = 0.5;
  CHECK(to_text(figures, "/data/out", 79, false)
            .find("filling the pipeline took 250 ms and draining it 500 ms; in between, it made 9.50 pictures/s\n") !=
        std::string::npos);
  figures["run_window"]["steady_pictures_per_s"] = 8.2;  // hardly more than the rate of the whole run
  CHECK(to_text(figures, "/data/out", 79, false).find("filling") == std::string::npos);
  figures["run_window"]["resources"][0]["utilisation"] = nullptr;
  figures["run_window"]["resources"][0]["p50_ms"] = nullptr;
  CHECK(to_text(figures, "/data/out", 79, false).find(" pictures       -       -      -") != std::string::npos);
  figures["run_window"]["source"] = nullptr;
  CHECK(to_text(figures, "/data/out", 79, false).find("  read  ") == std::string::npos);
  Json failed = to_json(report);
  failed["state"] = "failed";
  failed["error"] = "the device is gone";
  CHECK(to_text(failed, "/data/out", 79, false).find("\n  failed: the device is gone\n") != std::string::npos);
}

}  // namespace
}  // namespace millrace
