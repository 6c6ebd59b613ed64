#pragma once

#include <oneapi/tbb/flow_graph.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "pipeline/byte_gate.hpp"
#include "pipeline/crew.hpp"
#include "pipeline/gate.hpp"
#include "pipeline/stage_runner.hpp"
#include "pipeline/worker_arena.hpp"

namespace millrace {

namespace tbb_flow = oneapi::tbb::flow;

/// The nodes and edges of the graph, and the threads of its own between them:
///
///     admit -> file bytes -> read -> bytes -> frame stages -> join -> [ lane stages ] -> batch stages -> commit
///              order         crew    order    workers        serial    crew of lanes     workers         crew
///
/// Both places of bytes are in order of admission, and the bytes of a file are held until the frame stages are over.
/// That cannot deadlock: the next frame to be granted pixels has its file, or waits for it behind older frames only,
/// which all have their pixels and so give their files back.
///
/// What a crew works on, or has in its queue, holds a reservation of the graph until it is handed on. Nodes nearer the
/// end have the higher priority. Nodes have as many bodies at work as there are workers, not `unlimited`: TBB then
/// keeps what waits in order of arrival, so that the oldest batch is completed first and lanes are fed evenly.
///
/// A lane takes its next batch from its crew's queue by itself. With a join_node of batches and free lanes it would
/// wait for a worker to do so, for as long as that worker's body takes: on a loaded two-core machine one CPU-bound lane
/// was idle 15 to 18 % of the time with 14 batches before it (one run each, bench_overlap).
template <GraphFrame Frame, GraphBatch Batch>
class Flow {
 public:
  using Admitted = FrameInFlight<Frame>;
  using Joined = BatchInFlight<Batch>;
  using Runner = StageRunner<Frame, Batch>;

  /// Make it inside the workers' arena: the graph's tasks run in the arena it was made in. Starts the threads; each
  /// lane begins with its `lane_start` and takes batches from then on, also when that failed and ended the run.
  Flow(const GraphOptions& options, Statistics& statistics, Gate& gate, Runner& runner)
      : niceness_(options.worker_nice),
        statistics_(statistics),
        gate_(gate),
        runner_(runner),
        files_(std::make_shared<Bytes>(
            file_share(options), statistics.bytes,
            [this](Admitted* frame, ByteCredit, ByteCredit file) { read(*frame, std::move(file)); })),
        bytes_(std::make_shared<Bytes>(options.byte_budget - file_share(options), statistics.bytes,
                                       [this](Admitted* frame, ByteCredit pixels, ByteCredit beside) {
                                         grant(*frame, std::move(pixels), std::move(beside));
                                       })),
        join_(
            graph_, tbb_flow::serial, [this](Admitted* frame) { join(*frame); },
            priority(statistics.frame_stages.size())),
        readers_("read", options.read_threads),
        committer_("commit", 1) {
    connect(static_cast<std::size_t>(options.workers));
    if (statistics.lane_stages.empty()) return;
    lanes_.emplace(
        "lane", options.lanes, [this](int lane) { return runner_.lane_start(lane); },
        [this](int lane) { runner_.lane_stop(lane); });
  }
  Flow(const Flow&) = delete;
  Flow& operator=(const Flow&) = delete;
  ~Flow() {
    files_->close();
    bytes_->close();
  }

  void reserve() { graph_.reserve_wait(); }
  void release() { graph_.release_wait(); }

  /// Source thread, holding a reservation: hands a frame to the readers as soon as its file may be in memory.
  void admit(Admitted& frame, std::int64_t file_bytes) {
    runner_.put(frame, statistics_.bytes);
    files_->offer(frame.sequence, &frame, {0, file_bytes});
  }

  /// The calling thread works as one of the workers until nothing is in flight and nothing is reserved.
  void wait() { graph_.wait_for_all(); }

  /// After wait(): ends the lanes, each with its `lane_stop`.
  void stop_lanes() { lanes_.reset(); }

 private:
  using Bytes = ByteGate<Admitted*>;
  using JoinedPtr = std::shared_ptr<Joined>;
  using FrameNode = tbb_flow::function_node<Admitted*, Admitted*>;
  using JoinNode = tbb_flow::function_node<Admitted*, tbb_flow::continue_msg>;
  using BatchNode = tbb_flow::function_node<JoinedPtr, JoinedPtr>;

  static tbb_flow::node_priority_t priority(std::size_t position) {
    return static_cast<tbb_flow::node_priority_t>(position + 1);
  }

  void connect(std::size_t workers) {
    for (std::size_t i = 0; i < statistics_.frame_stages.size(); ++i) {
      frame_nodes_.emplace_back(
          graph_, workers,
          [this, i](Admitted* frame) {
            niceness_.apply();
            runner_.frame_stage(*frame, i);
            if (i + 1 == statistics_.frame_stages.size()) leave_frame_stages(*frame);
            runner_.arrive(*frame, before_frame_stage(i + 1));
            return frame;
          },
          priority(i));
      if (i > 0) tbb_flow::make_edge(frame_nodes_[i - 1], frame_nodes_[i]);
    }
    if (!frame_nodes_.empty()) tbb_flow::make_edge(frame_nodes_.back(), join_);

    const auto last = statistics_.batch_stages.size() - 1;
    for (std::size_t i = 0; i < statistics_.batch_stages.size(); ++i) {
      batch_nodes_.emplace_back(
          graph_, workers,
          [this, i, last](const JoinedPtr& batch) {
            niceness_.apply();
            runner_.batch_stage(*batch, i);
            if (i == last) {
              commit(batch);
            } else {
              runner_.queue(*batch, statistics_.batch_stages[i + 1]);
            }
            return batch;
          },
          priority(frame_nodes_.size() + 1 + i));
      if (i > 0) tbb_flow::make_edge(batch_nodes_[i - 1], batch_nodes_[i]);
    }
  }

  Meter& before_frame_stage(std::size_t i) {
    return i < statistics_.frame_stages.size() ? statistics_.frame_stages[i] : statistics_.batch;
  }

  // Posts a task to threads of our own; the graph is not finished before it is done.
  template <class Task>
  void hand(Crew& crew, Task task) {
    graph_.reserve_wait();
    crew.post([this, task = std::move(task)](int thread) {
      task(thread);
      graph_.release_wait();
    });
  }

  // This and `grant` are called by whoever gave back the bytes, which is inside the graph: the source with a
  // reservation, a reader, a worker, a lane or the committer.
  void read(Admitted& frame, ByteCredit file) {
    frame.file = std::move(file);
    runner_.arrive(frame, statistics_.read);
    hand(readers_, [this, &frame](int) {
      const auto need = runner_.read(frame);
      runner_.put(frame, statistics_.bytes);
      bytes_->offer(frame.sequence, &frame, need);
    });
  }

  void grant(Admitted& frame, ByteCredit pixels, ByteCredit beside) {
    frame.frame->set_credit(std::move(pixels));
    frame.beside_pixels = std::move(beside);
    gate_.settle();
    if (frame_nodes_.empty()) leave_frame_stages(frame);
    runner_.arrive(frame, before_frame_stage(0));
    if (frame_nodes_.empty()) {
      join_.try_put(&frame);
    } else {
      frame_nodes_.front().try_put(&frame);
    }
  }

  void leave_frame_stages(Admitted& frame) {
    frame.beside_pixels.release();
    frame.file.release();
  }

  void join(Admitted& frame) {
    const JoinedPtr batch = runner_.join(frame);
    if (batch == nullptr) return;
    if (!lanes_) return leave_lane(batch);
    runner_.queue(*batch, statistics_.lane);
    hand(*lanes_, [this, batch](int lane) {
      runner_.lane(*batch, lane);
      leave_lane(batch);
    });
  }

  void leave_lane(const JoinedPtr& batch) {
    if (batch_nodes_.empty()) return commit(batch);
    runner_.queue(*batch, statistics_.batch_stages.front());
    batch_nodes_.front().try_put(batch);
  }

  void commit(const JoinedPtr& batch) {
    runner_.queue(*batch, statistics_.commit);
    hand(committer_, [this, batch](int) {
      runner_.commit(*batch);
      gate_.give_back(batch->places);
    });
  }

  const WorkerNiceness niceness_;
  Statistics& statistics_;
  Gate& gate_;
  Runner& runner_;
  std::shared_ptr<Bytes> files_, bytes_;
  tbb_flow::graph graph_;
  std::deque<FrameNode> frame_nodes_;  // deques, because nodes do not move
  JoinNode join_;
  std::deque<BatchNode> batch_nodes_;
  Crew readers_, committer_;  // after the nodes, so that they are joined before the nodes go
  std::optional<Crew> lanes_;
};

}  // namespace millrace
