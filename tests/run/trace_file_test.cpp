// Tests of the file of a trace: its JSON, its order, its cut, and names that could break it.
#include <doctest/doctest.h>
#include <pthread.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/json.hpp"
#include "io/files/files.hpp"
#include "run/trace_file.hpp"
#include "stages/options.hpp"
#include "tests/io/files/temporary_folder.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;
using Kind = TraceEvent::Kind;

const std::string decode = "decode", lane = "lane", detect = "detect", encoder = "encoder";

/// Records on a thread of this name.
template <class Record>
void on_thread(const char* name, const Record& record) {
  std::jthread([&] {
    pthread_setname_np(pthread_self(), name);
    record();
  }).join();
}

struct Written {
  explicit Written(const TraceRecorder& recorder, TraceFacts facts = {"run-1", "now", "millrace 1", 1000, 2000, 9000})
      : note(write_trace(file, recorder, facts)), trace(Json::parse(std::ifstream(file))) {}
  /// The events with this phase, and with this name if it is not empty.
  [[nodiscard]] std::vector<Json> events(const std::string& phase, const std::string& name = "") const {
    std::vector<Json> found;
    for (const Json& event : trace.at("traceEvents"))
      if (event.at("ph") == phase && (name.empty() || event.at("name") == name)) found.push_back(event);
    return found;
  }
  TemporaryFolder folder{};
  std::string file = folder.path() + "/trace.json";
  std::string note;
  Json trace;
};

TEST_CASE("a trace has its facts, and threads in the order of the flow") {
  TraceRecorder recorder;
  for (const char* name : {"commit 0", "worker", "lane 10", "lane 9", "worker", "read 1", "source", "other"})
    on_thread(name, [&] { recorder.add({Kind::work, 0, &decode, 1, 3000, 4500}); });
  const Written written(recorder);
  CHECK(written.trace.at("otherData").at("run") == "run-1");
  CHECK(written.trace.at("otherData").at("program") == "millrace 1");
  CHECK(written.trace.at("otherData").at("events_left_out") == 0);
  CHECK(written.trace.at("otherData").contains("cpu"));
  std::vector<std::string> names;
  auto tracks = written.events("M", "thread_name");
  std::ranges::sort(tracks, {}, [](const Json& track) { return track.at("tid").get<int>(); });
  for (const Json& track : tracks) names.push_back(track.at("args").at("name"));
  CHECK(names == std::vector<std::string>{"marks", "source", "read 1", "worker 0", "worker 1", "lane 9", "lane 10",
                                          "commit 0", "other"});
  CHECK(written.note.find("8 events") != std::string::npos);
  CHECK(written.note.find("left out") == std::string::npos);
}

TEST_CASE("events of a trace have their times in microseconds since its zero") {
  TraceRecorder recorder;
  on_thread("lane 0", [&] {
    recorder.add({Kind::work, 16, &detect, 7, 3001, 4503});
    recorder.add({Kind::work, 0, &decode, 8, 4600, 4601}, "a.jpg");
    recorder.add({Kind::work, 0, &decode, -1, 4700, 4800});
    recorder.add({Kind::call, 64, &encoder, 12'345'678, 4710, 4720});
    recorder.add({Kind::queue, 0, &lane, 5, 5000, 5000});
    recorder.add({Kind::committed, 0, nullptr, 32, 6000, 6000});
    recorder.add({Kind::failure, 0, nullptr, 0, 2500, 6500}, R"({"id": 3, "path": "b.jpg", "reason": "empty"})");
  });
  const Written written(recorder);
  const auto work = written.events("X");
  REQUIRE(work.size() == 4);
  CHECK(work[3].at("name") == "GPU: encoder");
  CHECK(work[3].at("args") == Json{{"rows", 64}, {"alone_ms", 12.345678}});
  CHECK(work[0].at("name") == "detect");
  CHECK(work[0].at("ts") == 2.001);
  CHECK(work[0].at("dur") == 1.502);
  CHECK(work[0].at("args") == Json{{"batch", 7}, {"frames", 16}});
  CHECK(work[1].at("args") == Json{{"frame", 8}, {"file", "a.jpg"}});
  CHECK(work[2].at("args") == Json::object());
  CHECK(work[0].at("tid") == work[2].at("tid"));
  const auto counters = written.events("C");
  REQUIRE(counters.size() == 2);
  CHECK(counters[0].at("name") == "queue: lane");
  CHECK(counters[0].at("args") == Json{{"items", 5}});
  CHECK(counters[1].at("args") == Json{{"pictures", 32}});
  const auto failed = written.events("i");
  REQUIRE(failed.size() == 1);
  CHECK(failed[0].at("ts") == 1.5);  // when it failed, not when that was committed
  CHECK(failed[0].at("args").at("reason") == "empty");
  const auto run = written.events("b", "run");
  REQUIRE(run.size() == 1);
  CHECK(run[0].at("ts") == 1);
  CHECK(written.events("e", "run")[0].at("ts") == 8);
}

TEST_CASE("waits that overlap have different ids") {
  TraceRecorder recorder;
  on_thread("lane 0", [&] {
    recorder.add({Kind::wait, 4, &lane, 0, 1000, 2000});
    recorder.add({Kind::wait, 4, &lane, 1, 1500, 3000});
    recorder.add({Kind::wait, 4, &detect, 1, 1500, 5000});
  });
  const Written written(recorder, {"run-1", "now", "millrace 1"});
  std::set<std::string> ids;
  for (const Json& event : written.events("b")) ids.insert(event.at("id2").at("local"));
  CHECK(ids == std::set<std::string>{"lane 0", "lane 1", "detect 1"});
  CHECK(written.events("e").size() == 3);
  CHECK(written.events("b", "queue: lane")[1].at("args") == Json{{"batch", 1}, {"frames", 4}});
}

TEST_CASE("a cut is marked in the trace, in its metadata and in the note") {
  TraceRecorder recorder(4);
  for (std::int64_t i = 0; i < 20'000; ++i) recorder.add({Kind::work, 0, &decode, i, 1000 * i, 1000 * i + 500});
  const Written written(recorder);
  const auto left = static_cast<std::int64_t>(written.events("X").size());
  CHECK(left < 6'000);
  CHECK(written.trace.at("otherData").at("events_left_out") == 20'000 - left);
  const auto marks = written.events("i");
  REQUIRE(marks.size() == 1);
  CHECK(marks[0].at("name").get<std::string>().starts_with("cut: 1"));
  CHECK(marks[0].at("args").at("events") == 20'000 - left);
  CHECK(written.events("b", marks[0].at("name")).size() == 1);
  CHECK(written.note.find("left out") != std::string::npos);
}

TEST_CASE("no name breaks the JSON") {
  const std::vector<std::string> names{
      "quote\".jpg",  "back\\slash",  "line\nbreak\ttab", "</script>", std::string("nul\0byte", 8),
      "\xff\xfe.jpg", "\xed\xa0\x80", "caf\xc3\xa9.jpg"};
  TraceRecorder recorder;
  for (std::size_t i = 0; i < names.size(); ++i)
    recorder.add({Kind::work, 0, &decode, static_cast<std::int64_t>(i), 3000, 4000}, names[i]);
  const Written written(recorder);
  const auto work = written.events("X");
  REQUIRE(work.size() == names.size());
  for (std::size_t i = 0; i < 5; ++i) CHECK(work[i].at("args").at("file") == names[i]);
  CHECK(work[5].at("args").at("file") == "\xEF\xBF\xBD\xEF\xBF\xBD.jpg");
  CHECK(work[7].at("args").at("file") == names[7]);
}

TEST_CASE("a trace without an event is JSON, too, and replaces an older file") {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/trace.json";
  std::ofstream(file) << "old";
  const TraceRecorder recorder;
  const std::string note = write_trace(file, recorder, {});
  CHECK(Json::parse(std::ifstream(file)).at("traceEvents").size() >= 2);
  CHECK(std::distance(std::filesystem::directory_iterator(folder.path()), {}) == 1);
  CHECK(note.find("0 events") != std::string::npos);
}

TEST_CASE("names and places that a trace cannot have") {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() + "/x.json");
  CHECK_THROWS_WITH_AS(check_trace_name("recipe.yaml"), doctest::Contains("must end in .json"), UsageError);
  CHECK_THROWS_WITH_AS(check_trace_name(folder.path() + "/x.json"), doctest::Contains("a folder"), UsageError);
  std::filesystem::create_symlink("/dev/full", folder.path() + "/full.json");
  CHECK_THROWS_WITH_AS(check_trace_name(folder.path() + "/full.json"), doctest::Contains("no regular file"),
                       UsageError);
  CHECK_NOTHROW(check_trace_name(folder.path() + "/new.json"));
  CHECK_NOTHROW(check_trace_place(folder.path() + "/new.json"));
  CHECK_FALSE(std::filesystem::exists(folder.path() + "/new.json"));
  CHECK_THROWS_AS(check_trace_place(folder.path() + "/missing/new.json"), StorageError);
  CHECK_THROWS_AS(write_trace(folder.path() + "/missing/new.json", TraceRecorder(), {}), StorageError);
}

}  // namespace
}  // namespace millrace
