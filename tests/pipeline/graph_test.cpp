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
using fake::message;
using fake::Picture;
using fake::Pictures;
using fake::Rig;

bool each_once(const Rig& rig, int frames) {
  for (int id = 0; id < frames; ++id) {
    const auto found = rig.commits.find(id);
    if (found == rig.commits.end() || found->second != 1) return false;
  }
  return static_cast<int>(rig.commits.size()) == frames;
}

TEST_CASE("every frame passes every stage once, in order") {
  Rig rig;
  rig.frame_stages = {"decode", "rotate"};
  rig.batch_stages = {"encode", "draw"};
  rig.plan = fake::planned(203, 4);
  const auto result = rig.run();
  CHECK(result.error == nullptr);
  CHECK_FALSE(result.stopped);
  CHECK(result.planned == 203);
  CHECK(result.committed == 203);
  CHECK(each_once(rig, 203));
  const std::vector<std::string> way{"read", "decode", "rotate", "preprocess", "detect", "encode", "draw"};
  for (const auto& batch : rig.committed) {
    for (std::size_t slot = 0; slot < batch.size(); ++slot) {
      CHECK(batch[slot]->went == way);
      CHECK(batch[slot]->in_slot == static_cast<int>(slot));
      CHECK(batch[slot]->batch == batch[0]->batch);
    }
  }
}

TEST_CASE("with one thread for each part, batches commit in plan order") {
  Rig rig;
  rig.options.read_threads = 1;
  rig.plan = fake::planned(100, 4);
  rig.run();
  REQUIRE(rig.committed.size() == 25);
  for (std::size_t i = 0; i < 25; ++i) CHECK(rig.committed[i][0]->batch == static_cast<std::int64_t>(i));
}

TEST_CASE("interleaved and sorted views form batches with the smallest admission") {
  for (const int views : {1, 2, 3, 7}) {
    for (const int max_batch : {1, 4, 16}) {
      for (const bool interleaved : {true, false}) {
        CAPTURE(views);
        CAPTURE(max_batch);
        CAPTURE(interleaved);
        Rig rig;
        rig.options = {.max_batch = max_batch,
                       .admission_items = 2 * max_batch,
                       .slab_bytes = 100,
                       .byte_budget = 200 * max_batch,
                       .lanes = 2,
                       .workers = 2};
        rig.plan = fake::planned(500, views, max_batch, 150,
                                 [&](int id) { return interleaved ? id % views : id * views / 500; });
        const auto result = rig.run();
        CHECK(message(result.error) == "");
        CHECK(result.committed == 500);
        CHECK(each_once(rig, 500));
        CHECK(rig.inside.highest() <= 2 * max_batch);
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
  Rig rig;
  const auto result = rig.run();
  CHECK(result.error == nullptr);
  CHECK(result.planned == 0);
  CHECK(result.committed == 0);
  CHECK_FALSE(result.stopped);
}

TEST_CASE("a graph without optional stages runs") {
  Rig rig;
  rig.frame_stages.clear();
  rig.lane_stages.clear();
  rig.batch_stages.clear();
  rig.plan = fake::planned(50, 4);
  const auto result = rig.run();
  CHECK(result.committed == 50);
  CHECK(each_once(rig, 50));
}

TEST_CASE("files and pictures beyond the budget come in one at a time") {
  Rig rig;
  rig.options.admission_items = 16;
  rig.options.workers = 2;
  rig.plan = fake::planned(100, 4);
  const auto files = file_share(rig.options);
  const auto rest = rig.options.byte_budget - files;
  for (auto& picture : rig.plan) {
    picture.file = picture.id % 3 == 0 ? 1000 * files : files / 4;
    picture.working = picture.id % 5 == 0 ? 1000 * rest : 10;
  }
  const auto result = rig.run();
  CHECK(message(result.error) == "");
  CHECK(result.committed == 100);
  CHECK(rig.files.highest() == 1000 * files);
  CHECK(rig.files.now() == 0);
  CHECK(rig.decoding.highest() <= 1001 * rest);
  CHECK(rig.decoding.now() == 0);
}

TEST_CASE("a run that ends gives the bytes of waiting files back") {
  Rig rig;
  rig.plan = fake::planned(100, 4);
  for (auto& picture : rig.plan) picture.file = 1000;  // each file waits for the one before it
  rig.in_frame = [&](Picture& frame, const std::string& stage) {
    if (stage == "decode" && frame.id == 30) throw RunError("decode", "planted");
  };
  const auto result = rig.run();
  CHECK(message(result.error) == "decode: planted");
  CHECK(result.held.empty());
}

TEST_CASE("a lost credit of bytes ends the run and names where frames are held") {
  Rig rig;
  rig.plan = fake::planned(400, 4);
  std::vector<ByteCredit> kept;  // eight slabs fill the budget
  std::mutex mutex;
  rig.in_frame = [&](Picture& frame, const std::string& stage) {
    if (stage != "decode" || frame.id % 10 != 0) return;
    const std::lock_guard lock(mutex);
    kept.push_back(std::move(frame.credit));
  };
  const auto result = rig.run();
  CHECK(result.committed < result.planned);
  REQUIRE(!result.held.empty());
  CHECK(result.held.front().stage == "bytes");
  CHECK_THROWS_AS(std::rethrow_exception(result.error), FramesLost);
  const auto text = message(result.error);
  CHECK(text.find(" at bytes (batches ") != std::string::npos);
  CHECK(text.find("never committed") != std::string::npos);
  std::int64_t held = 0;
  for (const auto& place : result.held) held += place.frames;
  CHECK(held == result.planned - result.committed);
}

TEST_CASE("credits kept beyond the run do no harm") {
  std::vector<ByteCredit> kept;
  {
    Rig rig;
    rig.options.byte_budget = 1600;  // room for all credits that are never given back
    rig.plan = fake::planned(8, 4);
    rig.in_batch = [&](Pictures& batch, const std::string& stage) {
      if (stage != "commit") return;
      for (const auto& frame : batch.frames) kept.push_back(std::move(frame->credit));
    };
    CHECK(rig.run().committed == 8);
  }
  CHECK(kept.size() == 8);
  kept.clear();
}

TEST_CASE("a damaged plan ends the run, and the message has the place") {
  const auto run_plan = [](std::vector<Picture> plan) {
    Rig rig;
    rig.plan = std::move(plan);
    return message(rig.run().error);
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
  Rig rig;
  rig.plan = fake::planned(12, 4);
  rig.plan[5].pixels = 101;
  const auto result = rig.run();
  CHECK(message(result.error).find("asks for 101 bytes of pixels; a slab has 100") != std::string::npos);
  CHECK(result.error_stage == "read");
}

TEST_CASE("a stop commits the batches that lanes have begun, and gives up the other batches") {
  std::mt19937 random(7);
  for (int round = 0; round < 60; ++round) {
    Rig rig;
    rig.options.admission_items = 16;
    rig.options.byte_budget = 1600;
    rig.options.workers = 2;
    rig.options.lanes = 2;
    rig.plan = fake::planned(400, 4);
    const auto at_id = static_cast<std::int64_t>(random() % 400);
    const std::vector<std::string> stages{"read", "decode", "preprocess", "detect", "encode", "commit"};
    const auto at_stage = stages[random() % stages.size()];
    FakeGraph* running = nullptr;
    std::int64_t begun = 400;
    const auto stop = [&] {
      running->request_stop();
      begun = static_cast<std::int64_t>(rig.position.load());
    };
    rig.in_frame = [&](Picture& frame, const std::string& stage) {
      if (stage == at_stage && frame.id == at_id) stop();
    };
    rig.in_batch = [&](Pictures& batch, const std::string& stage) {
      for (const auto& frame : batch.frames) {
        if (stage == at_stage && frame->id == at_id) stop();
      }
    };
    FakeGraph graph(rig.options, rig.bodies(), rig.clock);
    running = &graph;
    const auto result = graph.run();
    CHECK(message(result.error) == "");
    CHECK(result.committed + result.given_up == result.planned);
    CHECK(static_cast<std::int64_t>(rig.commits.size()) == result.committed);
    CHECK(result.planned % 4 == 0);
    CHECK(result.committed % 4 == 0);
    CHECK(result.given_up <= 16);
    const bool in_lane_or_later = at_stage != "read" && at_stage != "decode";
    if (in_lane_or_later) CHECK(rig.commits.contains(at_id));
    CHECK(result.planned <= (begun + 3) / 4 * 4);  // no batch began after the stop
    CHECK((result.stopped || result.committed == 400));
  }
}

TEST_CASE("after a stop a lane begins no further batch, even if batches wait") {
  Rig rig;
  rig.options.admission_items = 32;
  rig.options.byte_budget = 3200;
  rig.plan = fake::planned(400, 4);
  FakeGraph* running = nullptr;
  std::vector<std::int64_t> finished;  // first frames of the batches that a lane finished
  rig.in_batch = [&](Pictures& batch, const std::string& stage) {
    const auto first = batch.frames.front()->id;
    if (stage == "preprocess" && first == 20) running->request_stop();
    if (stage == "detect") finished.push_back(first);
  };
  FakeGraph graph(rig.options, rig.bodies(), rig.clock);
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
  Rig rig;
  rig.plan = fake::planned(40, 4);
  FakeGraph graph(rig.options, rig.bodies(), rig.clock);
  graph.request_stop();
  const auto result = graph.run();
  CHECK(result.planned == 0);
  CHECK(result.stopped);
}

TEST_CASE("a stop reaches a source that blocks") {
  Rig rig;
  rig.plan = fake::planned(8, 4);
  auto bodies = rig.bodies();
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
  FakeGraph graph(rig.options, bodies, rig.clock);
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
  Rig rig;
  rig.options.lanes = 3;
  rig.options.admission_items = 24;
  rig.options.byte_budget = 2400;
  rig.plan = fake::planned(240, 4);
  auto bodies = rig.bodies();
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
  FakeGraph graph(rig.options, bodies, rig.clock);
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
    Rig rig;
    rig.options.workers = workers;
    rig.options.worker_nice = 3;
    rig.plan = fake::planned(100, 4);
    std::atomic<bool> right{true};
    fake::HighWater computing;
    rig.in_frame = [&](Picture&, const std::string& stage) {
      if (stage != "decode") return;
      const fake::HighWater::Within one(computing);
      if (nice_level() != std::min(mine + 3, 19)) right = false;
    };
    rig.in_batch = [&](Pictures&, const std::string& stage) {
      if (stage == "encode" ? nice_level() != std::min(mine + 3, 19) : nice_level() != mine) right = false;
    };
    rig.run();
    CHECK(right);
    CHECK(computing.highest() <= workers);
    CHECK(nice_level() == mine);
  }
}

TEST_CASE("snapshots can be taken at any time") {
  Rig rig;
  rig.plan = fake::planned(400, 4);
  FakeGraph graph(rig.options, rig.bodies(), rig.clock);
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
