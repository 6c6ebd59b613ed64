#pragma once

#include <oneapi/tbb/flow_graph.h>

#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "pipeline/byte_gate.hpp"
#include "pipeline/crew.hpp"
#include "pipeline/gate.hpp"
#include "pipeline/stage_runner.hpp"

namespace millrace {

namespace tbb_flow = oneapi::tbb::flow;

/// The nodes and edges of the graph, and the threads of its own that some of them hand messages to:
///
///     admit -> read -> bytes -> frame stages -> batch -> [ lane stages ] -> batch stages -> commit
///              crew    order    workers         serial     lane's crew      workers         crew
///
/// What runs outside TBB holds a reservation of the graph until its message is handed back. Nodes nearer the end have
/// the higher priority. Nodes have as many bodies at work as there are workers, not `unlimited`: TBB then keeps what
/// waits in order of arrival, so that the oldest batch is completed first and lanes are fed evenly.
template <GraphFrame Frame, GraphBatch Batch>
class Flow {
 public:
  using Admitted = FrameInFlight<Frame>;
  using Joined = BatchInFlight<Batch>;
  using Runner = StageRunner<Frame, Batch>;

  /// Make it inside the workers' arena: the graph's tasks run in the arena it was made in.
  Flow(const GraphOptions& options, Statistics& statistics, Gate& gate, Runner& runner)
      : statistics_(statistics),
        gate_(gate),
        runner_(runner),
        bytes_(std::make_shared<ByteGate<Admitted*>>(
            options.byte_budget, [this](Admitted* frame, ByteCredit credit) { grant(*frame, std::move(credit)); })),
        join_(
            graph_, tbb_flow::serial, [this](Admitted* frame, auto& ports) { join(*frame, std::get<0>(ports)); },
            priority(statistics.frame_stages.size())),
        take_lane_(graph_),
        ready_(graph_),
        free_lanes_(graph_),
        on_lane_(graph_, tbb_flow::unlimited, [this](const Taken& taken, auto& out) { run_on_lane(taken, out); }),
        commit_(
            graph_, tbb_flow::unlimited, [this](const JoinedPtr& batch, auto& out) { commit(batch, out); },
            priority(statistics.frame_stages.size() + 1 + statistics.batch_stages.size())),
        readers_("read", options.read_threads),
        committer_("commit", 1) {
    connect(options.workers);
    if (statistics.lane_stages.empty()) return;
    for (int lane = 0; lane < options.lanes; ++lane) lanes_.emplace_back("lane " + std::to_string(lane), 1);
  }
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;
  ~Flow() { bytes_->close(); }

  void reserve() { graph_.reserve_wait(); }
  void release() { graph_.release_wait(); }

  /// Starts the lanes; each takes batches once its `lane_start` returned, also when that failed and ended the run.
  void start_lanes() {
    started_.resize(lanes_.size());
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      graph_.reserve_wait();
      lanes_[i].post([this, i] {
        started_[i].ok = runner_.lane_start(static_cast<int>(i));
        free_lanes_.try_put(i);
        graph_.release_wait();
      });
    }
  }

  /// Source thread, holding a reservation: hands a frame to the readers.
  void admit(Admitted& frame) {
    graph_.reserve_wait();
    runner_.arrive(frame, statistics_.read);
    readers_.post([this, &frame] {
      const auto bytes = runner_.read(frame);
      runner_.arrive(frame, statistics_.bytes);
      bytes_->offer(frame.sequence, &frame, bytes);
      graph_.release_wait();
    });
  }

  /// The calling thread works as one of the workers until nothing is in flight and nothing is reserved.
  void wait() { graph_.wait_for_all(); }

  /// After wait(): `lane_stop` on each lane that started.
  void stop_lanes() {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      lanes_[i].post([this, i] {
        if (started_[i].ok) runner_.lane_stop(static_cast<int>(i));
      });
    }
    lanes_.clear();  // runs what was posted and joins
  }

 private:
  using JoinedPtr = std::shared_ptr<Joined>;
  using Taken = std::tuple<JoinedPtr, std::size_t>;  // a batch and the lane it has
  using FrameNode = tbb_flow::function_node<Admitted*, Admitted*>;
  using BatchNode = tbb_flow::function_node<JoinedPtr, JoinedPtr>;
  using LaneNode = tbb_flow::async_node<Taken, JoinedPtr>;
  using CommitNode = tbb_flow::async_node<JoinedPtr, tbb_flow::continue_msg>;
  struct Started {
    bool ok = false;  // of its own for each lane's thread, which vector<bool> would not be
  };

  static tbb_flow::node_priority_t priority(std::size_t position) {
    return static_cast<tbb_flow::node_priority_t>(position + 1);
  }

  void connect(int workers) {
    const auto slots = static_cast<std::size_t>(workers);
    for (std::size_t i = 0; i < statistics_.frame_stages.size(); ++i) {
      frame_nodes_.emplace_back(
          graph_, slots,
          [this, i](Admitted* frame) {
            runner_.frame_stage(*frame, i);
            runner_.arrive(*frame, before_frame_stage(i + 1));
            return frame;
          },
          priority(i));
      if (i > 0) tbb_flow::make_edge(frame_nodes_[i - 1], frame_nodes_[i]);
    }
    if (!frame_nodes_.empty()) tbb_flow::make_edge(frame_nodes_.back(), join_);

    for (std::size_t i = 0; i < statistics_.batch_stages.size(); ++i) {
      batch_nodes_.emplace_back(
          graph_, slots,
          [this, i](const JoinedPtr& batch) {
            runner_.batch_stage(*batch, i);
            runner_.arrive(*batch, before_batch_stage(i + 1));
            return batch;
          },
          priority(frame_nodes_.size() + 1 + i));
      if (i > 0) tbb_flow::make_edge(batch_nodes_[i - 1], batch_nodes_[i]);
    }
    if (!batch_nodes_.empty()) tbb_flow::make_edge(batch_nodes_.back(), commit_);

    auto& behind_lane =
        batch_nodes_.empty() ? static_cast<tbb_flow::receiver<JoinedPtr>&>(commit_) : batch_nodes_.front();
    if (statistics_.lane_stages.empty()) {
      tbb_flow::make_edge(tbb_flow::output_port<0>(join_), behind_lane);
      return;
    }
    tbb_flow::make_edge(tbb_flow::output_port<0>(join_), ready_);
    tbb_flow::make_edge(ready_, tbb_flow::input_port<0>(take_lane_));
    tbb_flow::make_edge(free_lanes_, tbb_flow::input_port<1>(take_lane_));
    tbb_flow::make_edge(take_lane_, on_lane_);
    tbb_flow::make_edge(on_lane_, behind_lane);
  }

  Meter& before_frame_stage(std::size_t i) {
    return i < statistics_.frame_stages.size() ? statistics_.frame_stages[i] : statistics_.batch;
  }
  Meter& before_batch_stage(std::size_t i) {
    return i < statistics_.batch_stages.size() ? statistics_.batch_stages[i] : statistics_.commit;
  }

  // Called by whoever gave back the bytes, which is inside the graph: a reader, a worker, a lane or the committer.
  void grant(Admitted& frame, ByteCredit credit) {
    statistics_.bytes.leave();
    frame.frame->set_credit(std::move(credit));
    gate_.settle();
    runner_.arrive(frame, before_frame_stage(0));
    if (frame_nodes_.empty()) {
      join_.try_put(&frame);
    } else {
      frame_nodes_.front().try_put(&frame);
    }
  }

  template <class Port>
  void join(Admitted& frame, Port& out) {
    auto batch = runner_.join(frame);
    if (batch == nullptr) return;
    runner_.arrive(*batch, statistics_.lane_stages.empty() ? before_batch_stage(0) : statistics_.lane);
    out.try_put(std::move(batch));
  }

  void run_on_lane(const Taken& taken, typename LaneNode::gateway_type& out) {
    out.reserve_wait();
    const auto& [batch, lane] = taken;
    lanes_[lane].post([this, &out, batch = batch, lane = lane] {
      runner_.lane(*batch, static_cast<int>(lane));
      runner_.arrive(*batch, before_batch_stage(0));
      free_lanes_.try_put(lane);
      out.try_put(batch);
      out.release_wait();
    });
  }

  void commit(const JoinedPtr& batch, typename CommitNode::gateway_type& out) {
    out.reserve_wait();
    committer_.post([this, &out, batch] {
      runner_.commit(*batch);
      gate_.give_back(batch->places);
      out.release_wait();
    });
  }

  Statistics& statistics_;
  Gate& gate_;
  Runner& runner_;
  std::shared_ptr<ByteGate<Admitted*>> bytes_;
  tbb_flow::graph graph_;
  std::deque<FrameNode> frame_nodes_;  // deques, because nodes do not move
  tbb_flow::multifunction_node<Admitted*, std::tuple<JoinedPtr>> join_;
  tbb_flow::join_node<Taken, tbb_flow::reserving> take_lane_;
  tbb_flow::queue_node<JoinedPtr> ready_;
  tbb_flow::queue_node<std::size_t> free_lanes_;
  LaneNode on_lane_;
  std::deque<BatchNode> batch_nodes_;
  CommitNode commit_;
  std::vector<Started> started_;
  Crew readers_, committer_;  // after the nodes, so that they are joined before the nodes go
  std::deque<Crew> lanes_;
};

}  // namespace millrace
