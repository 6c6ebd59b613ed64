// Order, capacity, planned batches, lost credits and stops of the whole graph, with integers instead of pictures.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <future>
#include <random>
#include <set>

#include "tests/pipeline/fake_graph.hpp"

namespace millrace {
namespace {

using fake::FakeGraph;
using fake::GraphFixture;
using fake::message;
using fake::Picture;
using fake::Pictures;

bool each_once(const GraphFixture& fixture, int frames) {
  for (int id = 0; id < frames; ++id) {
    const auto found = fixture.commits.find(id);
    if (found == fixture.commits.end() || found->second != 1) return false;
  }
  return static_cast<int>(fixture.commits.size()) == frames;
}

TEST_CASE("every frame passes every stage once, in order") {
  GraphFixture fixture;
  fixture.frame_stages = {"decode", "rotate"};
  fixture.batch_stages = {"encode", "draw"};
  fixture.plan = fake::planned(203, 4);
  const auto result = fixture.run();
  CHECK(result.error == nullptr);
  CHECK_FALSE(result.stopped);
  CHECK(result.planned == 203);
  CHECK(result.committed == 203);
  CHECK(each_once(fixture, 203));
  const std::vector<std::string> way{"read", "decode", "rotate", "preprocess", "detect", "encode", "draw"};
  for (const auto& batch : fixture.committed) {
    for (std::size_t slot = 0; slot < batch.size(); ++slot) {
      CHECK(batch[slot]->went == way);
      CHECK(batch[slot]->in_slot == static_cast<int>(slot));
      CHECK(batch[slot]->batch == batch[0]->batch);
    }
  }
}

TEST_CASE("with one thread for each part, batches commit in plan order") {
  GraphFixture fixture;
  fixture.options.read_threads = 1;
  fixture.plan = fake::planned(100, 4);
  fixture.run();
  REQUIRE(fixture.committed.size() == 25);
  for (std::size_t i = 0; i < 25; ++i) CHECK(fixture.committed[i][0]->batch == static_cast<std::int64_t>(i));
}

TEST_CASE("interleaved and sorted views form batches with the smallest admission") {
  for (const int views : {1, 2, 3, 7}) {
    for (const int max_batch : {1, 4, 16}) {
      for (const bool interleaved : {true, false}) {
        CAPTURE(views);
        CAPTURE(max_batch);
        CAPTURE(interleaved);
        GraphFixture fixture;
        fixture.options = {.max_batch = max_batch,
                           .admission_items = 2 * max_batch,
                           .slab_bytes = 100,
                           .byte_budget = 200 * max_batch,
                           .lanes = 2,
                           .workers = 2};
        fixture.plan = fake::planned(500, views, max_batch, 150,
                                     [&](int id) { return interleaved ? id % views : id * views / 500; });
        const auto result = fixture.run();
        CHECK(message(result.error) == "");
        CHECK(result.committed == 500);
        CHECK(each_once(fixture, 500));
        CHECK(fixture.inside.highest() <= 2 * max_batch);
      }
    }
  }
}

TEST_CASE("the options name the smallest value allowed") {
  const auto complaint = [](GraphOptions options) -> std::string {
    try {
      check(options);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  const GraphOptions good{.max_batch = 4, .admission_items = 8, .slab_bytes = 100, .byte_budget = 800};
  CHECK(complaint(good) == "");
  auto options = good;
  options.admission_items = 7;
  CHECK(complaint(options) == "admission_items is 7, the smallest allowed value is 8: two batches of 4 pictures");
  options = good;
  options.byte_budget = 799;
  CHECK(complaint(options).starts_with("byte_budget is 799, the smallest allowed value is 800"));
  options = good;
  options.lanes = 0;
  CHECK(complaint(options) == "lanes is 0, the smallest allowed value is 1");
  options = good;
  options.slab_bytes = std::int64_t{1} << 62;
  CHECK(complaint(options).starts_with("slab_bytes is"));
}

TEST_CASE("an empty input ends at once") {
  GraphFixture fixture;
  const auto result = fixture.run();
  CHECK(result.error == nullptr);
  CHECK(result.planned == 0);
  CHECK(result.committed == 0);
  CHECK_FALSE(result.stopped);
}

TEST_CASE("a graph without optional stages runs") {
  GraphFixture fixture;
  fixture.frame_stages.clear();
  fixture.lane_stages.clear();
  fixture.batch_stages.clear();
  fixture.plan = fake::planned(50, 4);
  const auto result = fixture.run();
  CHECK(result.committed == 50);
  CHECK(each_once(fixture, 50));
}

TEST_CASE("files and pictures beyond the budget come in one at a time") {
  GraphFixture fixture;
  fixture.options.admission_items = 16;
  fixture.options.workers = 2;
  fixture.plan = fake::planned(100, 4);
  const auto files = file_share(fixture.options);
  const auto rest = fixture.options.byte_budget - files;
  for (auto& picture : fixture.plan) {
    picture.file = picture.id % 3 == 0 ? 1000 * files : files / 4;
    picture.working = picture.id % 5 == 0 ? 1000 * rest : 10;
  }
  const auto result = fixture.run();
  CHECK(message(result.error) == "");
  CHECK(result.committed == 100);
  CHECK(fixture.files.highest() == 1000 * files);
  CHECK(fixture.files.now() == 0);
  CHECK(fixture.decoding.highest() <= 1001 * rest);
  CHECK(fixture.decoding.now() == 0);
}

TEST_CASE("a run that ends gives the bytes of waiting files back") {
  GraphFixture fixture;
  fixture.plan = fake::planned(100, 4);
  for (auto& picture : fixture.plan) picture.file = 1000;  // each file waits for the one before it
  fixture.in_frame = [&](Picture& frame, const std::string& stage) {
    if (stage == "decode" && frame.id == 30) throw RunError("decode", "planted");
  };
  const auto result = fixture.run();
  CHECK(message(result.error) == "decode: planted");
  CHECK(result.held.empty());
}

TEST_CASE("a lost credit of bytes ends the run and names where frames are held") {
  GraphFixture fixture;
  fixture.plan = fake::planned(400, 4);
  std::vector<ByteCredit> kept;  // eight slabs fill the budget
  std::mutex mutex;
  fixture.in_frame = [&](Picture& frame, const std::string& stage) {
    if (stage != "decode" || frame.id % 10 != 0) return;
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(frame.credit));
  };
  const auto result = fixture.run();
  CHECK(result.committed < result.planned);
  REQUIRE(!result.held.empty());
  CHECK(result.held.front().stage == "bytes");
  CHECK_THROWS_AS(std::rethrow_exception(result.error), FramesLost);
  const auto text = message(result.error);
  CHECK(text.find(" at bytes (batches ") != std::string::npos);
  CHECK(text.find("never committed") != std::string::npos);
  std::int64_t held = 0;
  for (const auto& at : result.held) held += at.frames;
  CHECK(held == result.planned - result.committed);
}

TEST_CASE("credits kept beyond the run do no harm") {
  std::vector<ByteCredit> kept;
  {
    GraphFixture fixture;
    fixture.options.byte_budget = 1600;  // room for all credits that are never given back
    fixture.plan = fake::planned(8, 4);
    fixture.in_batch = [&](Pictures& batch, const std::string& stage) {
      if (stage != "commit") return;
      for (const auto& frame : batch.frames) kept.push_back(std::move(frame->credit));
    };
    CHECK(fixture.run().committed == 8);
  }
  CHECK(kept.size() == 8);
  kept.clear();
}

TEST_CASE("a damaged plan ends the run, and the message has the place") {
  const auto run_plan = [](std::vector<Picture> plan) {
    GraphFixture fixture;
    fixture.plan = std::move(plan);
    return message(fixture.run().error);
  };
  auto plan = fake::planned(12, 4);
  std::swap(plan[3], plan[4]);  // batch 1 begins before batch 0 is complete
  CHECK(run_plan(std::move(plan)).find("slot 0 of 4 of batch 1 follows, but batch 0") != std::string::npos);
  plan = fake::planned(12, 4);
  plan.pop_back();
  CHECK(run_plan(std::move(plan)) == "source: the plan ends inside batch 2; missing frames: 1");
  plan = fake::planned(12, 4);
  plan[6].in_slot = 1;  // twice
  CHECK(run_plan(std::move(plan)).find("batch 1 has slot 1 of 4 twice") != std::string::npos);
  plan = fake::planned(12, 4);
  plan[6].in_slot = 4;
  CHECK(run_plan(std::move(plan)).find("slot 4 of 4") != std::string::npos);
  plan = fake::planned(12, 6);
  CHECK(run_plan(std::move(plan)).find("at most 4") != std::string::npos);
}

TEST_CASE("a frame that asks for more than a slab ends the run") {
  GraphFixture fixture;
  fixture.plan = fake::planned(12, 4);
  fixture.plan[5].pixels = 101;
  const auto result = fixture.run();
  CHECK(message(result.error).find("asks for 101 bytes of pixels; a slab has 100") != std::string::npos);
  CHECK(result.error_stage == "read");
}

TEST_CASE("a stop commits the batches that lanes have begun, and gives up the other batches") {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    GraphFixture fixture;
    fixture.options.admission_items = 16;
    fixture.options.byte_budget = 1600;
    fixture.options.workers = 2;
    fixture.options.lanes = 2;
    fixture.plan = fake::planned(400, 4);
    const auto at_id = static_cast<std::int64_t>(random() % 400);
    const std::vector<std::string> stages{"read", "decode", "preprocess", "detect", "encode", "commit"};
    const auto at_stage = stages[random() % stages.size()];
    FakeGraph* running = nullptr;
    std::int64_t begun = 400;
    const auto stop = [&] {
      running->request_stop();
      begun = static_cast<std::int64_t>(fixture.position.load());
    };
    fixture.in_frame = [&](Picture& frame, const std::string& stage) {
      if (stage == at_stage && frame.id == at_id) stop();
    };
    fixture.in_batch = [&](Pictures& batch, const std::string& stage) {
      for (const auto& frame : batch.frames) {
        if (stage == at_stage && frame->id == at_id) stop();
      }
    };
    FakeGraph graph(fixture.options, fixture.bodies(), fixture.clock);
    running = &graph;
    const auto result = graph.run();
    CHECK(message(result.error) == "");
    CHECK(result.committed + result.given_up == result.planned);
    CHECK(static_cast<std::int64_t>(fixture.commits.size()) == result.committed);
    CHECK(result.planned % 4 == 0);
    CHECK(result.committed % 4 == 0);
    CHECK(result.given_up <= 16);
    const bool in_lane_or_later = at_stage != "read" && at_stage != "decode";
    if (in_lane_or_later) CHECK(fixture.commits.contains(at_id));
    CHECK(result.planned <= (begun + 3) / 4 * 4);  // no batch began after the stop
    CHECK((result.stopped || result.committed == 400));
  }
}

TEST_CASE("after a stop a lane begins no further batch, even if batches wait") {
  GraphFixture fixture;
  fixture.options.admission_items = 32;
  fixture.options.byte_budget = 3200;
  fixture.plan = fake::planned(400, 4);
  FakeGraph* running = nullptr;
  std::vector<std::int64_t> finished;  // first frames of the batches that a lane finished
  fixture.in_batch = [&](Pictures& batch, const std::string& stage) {
    const auto first = batch.frames.front()->id;
    if (stage == "preprocess" && first == 20) running->request_stop();
    if (stage == "detect") finished.push_back(first);
  };
  FakeGraph graph(fixture.options, fixture.bodies(), fixture.clock);
  running = &graph;
  const auto result = graph.run();
  CHECK(message(result.error) == "");
  CHECK(result.stopped);
  REQUIRE_FALSE(finished.empty());
  CHECK(finished.back() == 20);  // the lane finishes the batch that it has begun
  CHECK(result.committed == static_cast<std::int64_t>(4 * finished.size()));
  CHECK(result.committed + result.given_up == result.planned);
}

TEST_CASE("a stop before the run admits nothing") {
  GraphFixture fixture;
  fixture.plan = fake::planned(40, 4);
  FakeGraph graph(fixture.options, fixture.bodies(), fixture.clock);
  graph.request_stop();
  const auto result = graph.run();
  CHECK(result.planned == 0);
  CHECK(result.stopped);
}

TEST_CASE("a stop reaches a source that blocks") {
  GraphFixture fixture;
  fixture.plan = fake::planned(8, 4);
  auto bodies = fixture.bodies();
  std::promise<void> at_end;
  std::promise<void> interrupted;
  bodies.next = [&, next = bodies.next] {
    auto frame = next();
    if (frame == nullptr) {  // an open stdin
      at_end.set_value();
      interrupted.get_future().wait();
    }
    return frame;
  };
  int interruptions = 0;
  bodies.stop_next = [&] {
    ++interruptions;
    interrupted.set_value();
  };
  FakeGraph graph(fixture.options, bodies, fixture.clock);
  auto result = std::async(std::launch::async, [&] { return graph.run(); });
  at_end.get_future().wait();
  graph.request_stop();
  graph.request_stop();
  const Result outcome = result.get();
  CHECK(outcome.planned == 8);
  CHECK(outcome.committed + outcome.given_up == 8);
  CHECK(interruptions == 1);
}

TEST_CASE("lanes start before their first batch and stop after their last, on one thread each") {
  GraphFixture fixture;
  fixture.options.lanes = 3;
  fixture.options.admission_items = 24;
  fixture.options.byte_budget = 2400;
  fixture.plan = fake::planned(240, 4);
  auto bodies = fixture.bodies();
  struct Seen {
    std::thread::id thread;
    int starts = 0, stops = 0, batches = 0;
  };
  std::vector<Seen> seen(3);  // each lane accesses only its own element
  bodies.lane_start = [&](int lane) {
    auto& mine = seen[static_cast<std::size_t>(lane)];
    mine.thread = std::this_thread::get_id();
    ++mine.starts;
  };
  std::atomic<bool> right{true};
  bodies.lane_stages = {{"detect", [&](Pictures&, int lane) {
                           auto& mine = seen[static_cast<std::size_t>(lane)];
                           ++mine.batches;
                           if (mine.thread != std::this_thread::get_id() || mine.starts != 1 || mine.stops != 0)
                             right = false;
                         }}};
  bodies.lane_stop = [&](int lane) {
    auto& mine = seen[static_cast<std::size_t>(lane)];
    if (mine.thread != std::this_thread::get_id()) right = false;
    ++mine.stops;
  };
  FakeGraph graph(fixture.options, bodies, fixture.clock);
  CHECK(graph.run().committed == 240);
  CHECK(right);
  CHECK(seen[0].batches + seen[1].batches + seen[2].batches == 60);
  std::set<std::thread::id> threads;
  for (const auto& lane : seen) {
    CHECK(lane.starts == 1);
    CHECK(lane.stops == 1);
    threads.insert(lane.thread);
  }
  CHECK(threads.size() == 3);
}

TEST_CASE("workers have a lower priority than other threads, and at most so many compute as the option says") {
  const auto nice_level = [] { return getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())); };
  const int mine = nice_level();
  for (const int workers : {1, 2}) {
    GraphFixture fixture;
    fixture.options.workers = workers;
    fixture.options.worker_nice = 3;
    fixture.plan = fake::planned(100, 4);
    std::atomic<bool> right{true};
    fake::HighWater computing;
    fixture.in_frame = [&](Picture&, const std::string& stage) {
      if (stage != "decode") return;
      const fake::HighWater::Within one(computing);
      if (nice_level() != std::min(mine + 3, 19)) right = false;
    };
    fixture.in_batch = [&](Pictures&, const std::string& stage) {
      if (stage == "encode" ? nice_level() != std::min(mine + 3, 19) : nice_level() != mine) right = false;
    };
    fixture.run();
    CHECK(right);
    CHECK(computing.highest() <= workers);
    CHECK(nice_level() == mine);
  }
}

TEST_CASE("snapshots can be taken at any time") {
  GraphFixture fixture;
  fixture.plan = fake::planned(400, 4);
  FakeGraph graph(fixture.options, fixture.bodies(), fixture.clock);
  std::atomic<bool> done{false};
  std::jthread watcher([&] {
    std::int64_t last = 0;
    while (!done) {
      const auto now = graph.snapshot();
      if (now.committed < last || now.committed > now.planned) std::abort();
      last = now.committed;
    }
  });
  const auto result = graph.run();
  done = true;
  watcher.join();
  CHECK(result.finished.committed == 400);
  CHECK(result.finished.resources.size() == 4);
  CHECK(result.finished.resources[0].total.items == 400);
  CHECK(result.finished.bytes.queue_length == 0);
  CHECK(result.finished.batch.queue_length == 0);
  for (const auto& resource : result.finished.resources) {
    CHECK(resource.total.queue_length == 0);
    for (const auto& part : resource.parts) CHECK(part.queue_length == 0);
  }
}

}  // namespace
}  // namespace millrace
