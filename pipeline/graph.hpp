#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "pipeline/flow.hpp"
#include "pipeline/graph_bodies.hpp"
#include "pipeline/graph_options.hpp"
#include "pipeline/graph_result.hpp"
#include "pipeline/worker_arena.hpp"

namespace millrace {

/// The staged pipeline. It admits frames in plan order, reads them, runs the frame stages and joins planned batches.
/// Then it runs the lane section and the batch stages, and commits. flow.hpp shows the nodes and threads.
///
/// Credits limit everything inside:
/// - `admission_items`: frames from admission to commit
/// - `byte_budget`: bytes of files, of decoded pixels and of memory for decoding
/// - `read_ahead`: frames that are admitted but have no bytes for their pixels yet
///
/// No body waits for a credit and no node refuses a message, so the graph cannot deadlock.
/// If a credit is lost because of a defect, the run ends with FramesLost and does not hang.
template <GraphFrame Frame, GraphBatch Batch>
class Graph {
 public:
  /// Throws std::invalid_argument if an option is too small or a body is missing. `clock` must outlive the graph.
  /// So must `recorder`, which gets the trace of the run. The recorder's last visit() must come before the graph's end.
  Graph(const GraphOptions& options, GraphBodies<Frame, Batch> bodies, const Clock& clock,
        TraceRecorder* recorder = nullptr)
      : options_(checked(options, bodies)),
        bodies_(std::move(bodies)),
        trace_(recorder),
        statistics_(options_, names(bodies_.frame_stages), names(bodies_.lane_stages), names(bodies_.batch_stages),
                    clock, &trace_),
        gate_(options_.admission_items, options_.read_ahead, statistics_.without_credits, trace_),
        state_([this] {
          gate_.close();
          interrupt_next();
        }) {}

  /// Runs until the source has ended and everything is committed, or until the run is stopped or ended by an error.
  /// Call it only once. Throws std::system_error if the system has no more threads; every other error is in the result.
  Result run();

  /// From any thread: stops the run. Lanes finish the batches that they have begun, and these are committed.
  /// Frames and batches that wait before the lanes are given up. So stopping takes no longer than one batch per lane.
  /// Without lanes, the same holds for the frame stages.
  void request_stop() {
    stop_requested_.store(true);
    gate_.stop();  // first, so that credits of given-up frames do not begin another batch
    state_.stop();
    interrupt_next();
  }

  /// From any thread at any time: the statistics so far.
  [[nodiscard]] Snapshot snapshot() const {
    Snapshot now = statistics_.snapshot();
    now.credit_waits = gate_.waits();
    return now;
  }

  /// From any thread at any time: the batches of the lanes so far.
  [[nodiscard]] LaneTimeline::Kept timeline() const { return statistics_.timeline.read(); }

 private:
  using Runner = StageRunner<Frame, Batch>;
  using GraphFlow = Flow<Frame, Batch>;

  static const GraphOptions& checked(const GraphOptions& options, const GraphBodies<Frame, Batch>& bodies) {
    check(options);
    if (!bodies.next || !bodies.read || !bodies.bytes || !bodies.make_batch || !bodies.commit || !bodies.frame_failed ||
        !bodies.batch_failed) {
      throw std::invalid_argument(
          "a graph needs the bodies next, read, bytes, make_batch, commit, frame_failed and batch_failed");
    }
    return options;
  }
  template <class Bodies>
  static std::vector<std::string> names(const Bodies& bodies) {
    std::vector<std::string> all;
    for (const auto& body : bodies) all.push_back(body.name);
    return all;
  }

  void interrupt_next() {
    if (bodies_.stop_next && !interrupted_.exchange(true)) bodies_.stop_next();
  }

  void admit_all(GraphFlow& flow, Runner& runner) noexcept;
  std::shared_ptr<Frame> next_frame(std::int64_t sequence);
  Result result(const Runner& runner);

  const GraphOptions options_;
  const GraphBodies<Frame, Batch> bodies_;
  const Trace trace_;
  Statistics statistics_;
  Gate gate_;
  RunState state_;
  std::atomic<bool> stop_requested_{false};
  std::atomic<bool> interrupted_{false};
  std::atomic<bool> exhausted_{false};  // the source ended by itself, not because of a stop
};

template <GraphFrame Frame, GraphBatch Batch>
Result Graph<Frame, Batch>::run() {
  const auto begun = snapshot();
  Runner runner(options_, bodies_, statistics_, state_, trace_);
  WorkerArena arena(options_.workers);
  std::unique_ptr<GraphFlow> flow;
  arena.execute([&] { flow = std::make_unique<GraphFlow>(options_, statistics_, gate_, runner); });
  gate_.open([&flow = *flow] { flow.reserve(); }, [&flow = *flow] { flow.release(); });
  {
    std::jthread worker;  // the first of the workers; the calling thread only waits for it
    std::jthread source;
    try {
      worker = std::jthread([&] { flow->wait(); });
      source = std::jthread([&] { admit_all(*flow, runner); });
    } catch (...) {
      gate_.finish();  // drops the reservation, so that the worker can end
      throw;
    }
    worker.join();
    gate_.close();  // wakes a source that waits for a lost credit
  }
  flow->stop_lanes();
  auto outcome = result(runner);
  flow.reset();
  runner.clear();
  outcome.begun = begun;
  return outcome;
}

template <GraphFrame Frame, GraphBatch Batch>
std::shared_ptr<Frame> Graph<Frame, Batch>::next_frame(std::int64_t sequence) {
  statistics_.input.arrive();
  const auto service = statistics_.input.begin();
  Trace::Range range(trace_, statistics_.input.name(), sequence);
  std::shared_ptr<Frame> frame;
  try {
    frame = bodies_.next();
  } catch (...) {
    range.end(service.begun_ns, statistics_.input.end(service, true));
    throw;
  }
  range.end(service.begun_ns, statistics_.input.end(service, false));
  return frame;
}

/// The body of the source's thread.
/// A stop takes effect between batches, so that every batch that has begun is admitted whole.
template <GraphFrame Frame, GraphBatch Batch>
void Graph<Frame, Batch>::admit_all(GraphFlow& flow, Runner& runner) noexcept {
  name_this_thread("source");
  std::int64_t batch = 0;
  int missing = 0;  // frames of `batch` that are not admitted yet
  try {
    for (std::int64_t sequence = 0;; ++sequence) {
      const auto credit = gate_.take(missing == 0);
      if (!credit) break;
      auto frame = next_frame(sequence);
      if (frame == nullptr && missing > 0) {
        throw RunError("source", "the plan ends inside batch " + std::to_string(batch) +
                                     "; missing frames: " + std::to_string(missing));
      }
      if (frame == nullptr) exhausted_.store(!gate_.stopped());
      if (frame == nullptr || state_.ended() || (missing == 0 && gate_.stopped())) break;
      const int size = frame->batch_size();
      if (missing == 0) {
        batch = frame->batch_id();
        missing = size;
      }
      if (frame->batch_id() != batch || size < 1 || size > options_.max_batch || frame->slot() < 0 ||
          frame->slot() >= size) {
        throw RunError("source", "the plan is damaged: after " + std::to_string(sequence) + " frames, slot " +
                                     std::to_string(frame->slot()) + " of " + std::to_string(size) + " of batch " +
                                     std::to_string(frame->batch_id()) + " follows, but batch " +
                                     std::to_string(batch) + " of at most " + std::to_string(options_.max_batch) +
                                     " frames is due");
      }
      --missing;
      const int group = bodies_.group ? bodies_.group(*frame) : 0;
      if (group < 0 || group >= options_.groups)
        throw RunError("source", "batch " + std::to_string(batch) + " is of group " + std::to_string(group) + " of " +
                                     std::to_string(options_.groups));
      const auto file_bytes = bodies_.file_bytes ? bodies_.file_bytes(*frame) : 0;
      auto& admitted = runner.admitted(*credit);
      admitted.sequence = sequence;
      admitted.batch_id = batch;
      admitted.group = group;
      admitted.given_up = false;
      admitted.frame = std::move(frame);
      admitted.admitted_ns = statistics_.count_planned();
      flow.admit(admitted, file_bytes);
    }
  } catch (...) {
    state_.end("source", std::current_exception());
  }
  gate_.finish();
}

template <GraphFrame Frame, GraphBatch Batch>
Result Graph<Frame, Batch>::result(const Runner& runner) {
  Result outcome;
  outcome.finished = snapshot();
  outcome.planned = outcome.finished.planned;
  outcome.committed = outcome.finished.committed;
  outcome.given_up = runner.given_up();
  outcome.stopped = stop_requested_.load() && (!exhausted_.load() || outcome.given_up > 0);
  if (!state_.ended() && outcome.planned != outcome.committed + outcome.given_up) {
    for (const auto* meter : statistics_.meters_of_frames()) {
      Held held{meter->name(), 0, {}};
      for (const auto& admitted : runner.in_flight()) {
        if (admitted.at.load(std::memory_order_relaxed) != meter) continue;
        ++held.frames;
        held.batches.push_back(admitted.batch_id);
      }
      std::ranges::sort(held.batches);
      const auto repeated = std::ranges::unique(held.batches);
      held.batches.erase(repeated.begin(), repeated.end());
      if (held.frames > 0) outcome.held.push_back(std::move(held));
    }
    state_.end("gate", std::make_exception_ptr(
                           FramesLost(outcome.planned, outcome.committed + outcome.given_up, outcome.held)));
  }
  outcome.error = state_.error();
  outcome.error_stage = state_.error_stage();
  return outcome;
}

}  // namespace millrace
