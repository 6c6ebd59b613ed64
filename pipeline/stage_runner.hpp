#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/trace.hpp"
#include "pipeline/batcher.hpp"
#include "pipeline/graph_bodies.hpp"
#include "pipeline/graph_options.hpp"
#include "pipeline/run_state.hpp"

namespace millrace {

/// Runs the bodies. It measures them, keeps their exceptions out of the graph and skips failed frames.
/// Once the run has ended, it skips everything.
/// It knows the steps of a message, but no threads and no nodes.
template <GraphFrame Frame, GraphBatch Batch>
class StageRunner {
 public:
  using Admitted = FrameInFlight<Frame>;
  using Joined = BatchInFlight<Batch>;

  StageRunner(const GraphOptions& options, const GraphBodies<Frame, Batch>& bodies, Statistics& statistics,
              RunState& state, const Trace& trace)
      : options_(options),
        bodies_(bodies),
        statistics_(statistics),
        state_(state),
        trace_(trace),
        in_flight_(static_cast<std::size_t>(options.admission_items)),
        moments_(static_cast<std::size_t>(options.lanes)) {
    for (std::size_t i = 0; i < in_flight_.size(); ++i) in_flight_[i].credit = static_cast<int>(i);
    for (auto& moments : moments_) moments.resize(bodies.lane_stages.size() + 1);
  }

  /// Records that the frame is at the place of `meter`. The meter does not count it yet.
  static void put(Admitted& frame, Meter& meter) noexcept { frame.at.store(&meter, std::memory_order_relaxed); }
  /// The frame begins to wait at `meter`.
  static void arrive(Admitted& frame, Meter& meter) noexcept {
    put(frame, meter);
    meter.arrive();
  }
  /// The batch begins to wait for a thread that serves `meter`.
  void queue(Joined& batch, Meter& meter) noexcept {
    const auto now = arrive(batch, meter);
    batch.waiting = trace_.begin_wait(meter.name(), id(batch), batch.credits.size(), now);
  }
  [[nodiscard]] Admitted& admitted(int credit) noexcept { return in_flight_[static_cast<std::size_t>(credit)]; }
  [[nodiscard]] const std::vector<Admitted>& in_flight() const noexcept { return in_flight_; }
  /// Frames of batches that were given up.
  [[nodiscard]] std::int64_t given_up() const noexcept { return given_up_; }
  /// Releases the frames of a run that has ended.
  void clear() {
    for (auto& admitted : in_flight_) admitted.frame = nullptr;
  }

  /// Reads the frame and returns the bytes that it needs; none for a frame that failed.
  ByteNeed read(Admitted& admitted) noexcept {
    ByteNeed need(0);
    on_frame(admitted, statistics_.read, [&](Frame& frame) {
      bodies_.read(frame);
      if (frame.failed()) return;
      const auto wanted = bodies_.bytes(frame);
      if (wanted.kept < 0 || wanted.kept > options_.slab_bytes) {
        throw RunError("read", "a frame of batch " + std::to_string(admitted.batch_id) + " asks for " +
                                   std::to_string(wanted.kept) + " bytes of pixels; a slab has " +
                                   std::to_string(options_.slab_bytes) + ": reduce the picture while decoding");
      }
      need = wanted;
    });
    return need;
  }

  void frame_stage(Admitted& admitted, std::size_t stage) noexcept {
    on_frame(admitted, statistics_.frame_stages[stage], bodies_.frame_stages[stage].run);
  }

  /// Adds the frame to its batch. Returns the batch if it is complete, else nullptr. Called by one thread at a time.
  std::shared_ptr<Joined> join(Admitted& admitted) noexcept {
    std::vector<Admitted*> complete;
    if (!guarded("batch", [&] { complete = batcher_.add(admitted); }) || complete.empty()) return nullptr;
    statistics_.batch.leave(static_cast<int>(complete.size()));
    auto joined = std::make_shared<Joined>();
    std::vector<std::shared_ptr<Frame>> frames;
    for (auto* frame : complete) {
      joined->credits.push_back(frame->credit);
      frames.push_back(std::move(frame->frame));
    }
    const bool given_up = std::ranges::any_of(complete, [](const auto* frame) { return frame->given_up; });
    if (!state_.ended() && !given_up) {
      guarded("batch", [&] { joined->batch = bodies_.make_batch(std::move(frames)); });
    }
    return joined;
  }

  /// Runs the whole lane section for one batch, on the thread of `lane`. Gives the batch up if the run is stopping.
  void lane(Joined& joined, int lane) noexcept {
    if (state_.stopping()) joined.batch = nullptr;
    if (joined.batch == nullptr) return trace_.end_wait(joined.waiting, statistics_.lane.leave());
    const auto service = statistics_.lane.begin();
    trace_.end_wait(joined.waiting, service.begun_ns);
    auto& moments = moments_[static_cast<std::size_t>(lane)];
    moments[0] = service.begun_ns;
    for (std::size_t i = 0; i < bodies_.lane_stages.size(); ++i) {
      arrive(joined, statistics_.lane_stages[i]);
      moments[i + 1] = on_batch(joined, statistics_.lane_stages[i], [&](Batch& batch) {
                         bodies_.lane_stages[i].run(batch, lane);
                       }).value_or(moments[i]);
    }
    statistics_.lane.end(service, false);
    if (statistics_.clock().measures()) {
      const auto frames = static_cast<std::int64_t>(joined.credits.size());
      statistics_.timeline.add({id(joined), lane, group(joined), frames}, moments);
    }
  }
  /// Returns whether the lane is ready for batches.
  bool lane_start(int lane) noexcept {
    static const std::string warm_up = "warm-up";  // recorders keep the address of a name
    const auto begun_ns = statistics_.clock().now_ns();
    Trace::Range range(trace_, warm_up, -1);
    const bool started = guarded("lane", [&] {
      if (bodies_.lane_start) bodies_.lane_start(lane);
      statistics_.clock().adopt_team();
    });
    range.end(begun_ns, statistics_.clock().now_ns());
    return started;
  }
  void lane_stop(int lane) noexcept {
    guarded("lane", [&] {
      if (bodies_.lane_stop) bodies_.lane_stop(lane);
    });
  }

  void batch_stage(Joined& joined, std::size_t stage) noexcept {
    on_batch(joined, statistics_.batch_stages[stage], bodies_.batch_stages[stage].run);
  }

  /// Commits the batch, unless the run has ended or the batch was given up. Then releases the batch and its frames.
  void commit(Joined& joined) noexcept {
    if (state_.ended() || joined.batch == nullptr) {
      trace_.end_wait(joined.waiting, statistics_.commit.leave());
      if (!state_.ended() && state_.stopping()) given_up_ += static_cast<std::int64_t>(joined.credits.size());
    } else {
      const auto frames = joined.credits.size();
      const auto service = statistics_.commit.begin();
      trace_.end_wait(joined.waiting, service.begun_ns);
      Trace::Range range(trace_, statistics_.commit.name(), id(joined), frames);
      const bool committed = guarded("commit", [&] { bodies_.commit(*joined.batch); });
      const auto ended_ns = statistics_.commit.end(service, !committed, group(joined));
      range.end(service.begun_ns, ended_ns);
      if (committed) {
        std::vector<std::int64_t> admitted_ns;
        for (const int credit : joined.credits) admitted_ns.push_back(this->admitted(credit).admitted_ns);
        trace_.committed(statistics_.count_committed(admitted_ns), ended_ns);
      }
    }
    joined.batch = nullptr;
    statistics_.count_left(static_cast<std::int64_t>(joined.credits.size()));
    for (const int credit : joined.credits) this->admitted(credit).at.store(nullptr, std::memory_order_relaxed);
  }

 private:
  std::int64_t arrive(const Joined& batch, Meter& meter) noexcept {
    for (const int credit : batch.credits) this->admitted(credit).at.store(&meter, std::memory_order_relaxed);
    return meter.arrive();
  }
  [[nodiscard]] std::int64_t id(const Joined& batch) noexcept { return admitted(batch.credits.front()).batch_id; }

  [[nodiscard]] int group(const Joined& batch) noexcept { return admitted(batch.credits.front()).group; }

  // Calls a function whose exceptions end the run; returns whether it succeeded.
  template <class Function>
  bool guarded(const char* stage, const Function& function) noexcept {
    try {
      function();
      return true;
    } catch (...) {
      state_.end(stage, std::current_exception());
      return false;
    }
  }

  template <class Run>
  void on_frame(Admitted& admitted, Meter& meter, const Run& run) noexcept {
    auto& frame = *admitted.frame;
    admitted.given_up = admitted.given_up || state_.stopping();
    if (state_.ended() || admitted.given_up || frame.failed()) {
      meter.leave();
      return;
    }
    const auto service = meter.begin();
    Trace::Range range(trace_, meter.name(), admitted.sequence);
    std::exception_ptr error;
    try {
      run(frame);
    } catch (...) {
      error = std::current_exception();
    }
    const auto ended_ns = meter.end(service, error != nullptr || frame.failed(), admitted.group);
    range.end(service.begun_ns, ended_ns, trace_.records() && bodies_.file ? bodies_.file(frame) : std::string_view());
    if (error == nullptr) return;
    state_.judge(meter.name(), error,
                 [&](const std::exception_ptr& e) { bodies_.frame_failed(frame, meter.name(), e); });
  }

  /// Returns when the stage ended; nothing if the batch skipped it.
  template <class Run>
  std::optional<std::int64_t> on_batch(Joined& joined, Meter& meter, const Run& run) noexcept {
    if (state_.ended() || joined.batch == nullptr || joined.batch->empty()) {
      trace_.end_wait(joined.waiting, meter.leave());
      return std::nullopt;
    }
    auto& batch = *joined.batch;
    const auto service = meter.begin();
    trace_.end_wait(joined.waiting, service.begun_ns);
    Trace::Range range(trace_, meter.name(), id(joined), joined.credits.size());
    std::exception_ptr error;
    try {
      run(batch);
    } catch (...) {
      error = std::current_exception();
    }
    const auto ended_ns = meter.end(service, error != nullptr, group(joined));
    range.end(service.begun_ns, ended_ns);
    if (error != nullptr) {
      state_.judge(meter.name(), error,
                   [&](const std::exception_ptr& e) { bodies_.batch_failed(batch, meter.name(), e); });
    }
    return ended_ns;
  }

  const GraphOptions& options_;
  const GraphBodies<Frame, Batch>& bodies_;
  Statistics& statistics_;
  RunState& state_;
  const Trace& trace_;
  std::atomic<std::int64_t> given_up_{0};
  std::vector<Admitted> in_flight_;
  std::vector<std::vector<std::int64_t>> moments_;  // by lane: when its batch began, and when each stage ended
  Batcher<Frame> batcher_;
};

}  // namespace millrace
