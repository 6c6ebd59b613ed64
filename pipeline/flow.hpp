#pragma once

#include <oneapi/tbb/flow_graph.h>

#include <deque>
#include <memory>
#include <optional>
#include <utility>

#include "pipeline/byte_gate.hpp"
#include "pipeline/gate.hpp"
#include "pipeline/stage_runner.hpp"
#include "pipeline/thread_pool.hpp"
#include "pipeline/worker_arena.hpp"

namespace millrace {

namespace tbb_flow = oneapi::tbb::flow;

/// The nodes and edges of the TBB graph, with thread pools between them:
///
///         admit -> file bytes -> read -> bytes -> frame stages -> join -> [ lane stages ] -> batch stages -> commit
///                  order         pool    order    workers        serial    pool of lanes     workers         pool
///
/// Both byte gates grant in the order of admission, and a frame holds the bytes of its file until its frame stages end.
/// This cannot deadlock. The next frame that needs pixels has its file, or only older frames delay its file.
/// The older frames all have their pixels, so they finish their frame stages and give the bytes of their files back.
///
/// A message in a thread pool or in its queue holds a reservation of the graph.
/// So the graph does not finish without it.
///
/// Nodes nearer to the end have a higher priority. A node runs at most as many bodies at a time as there are workers.
/// With a limit, unlike with `unlimited`, TBB keeps waiting messages in the order of arrival.
/// So the oldest batch is completed first, and lanes get batches evenly.
///
/// A lane takes its next batch from the queue of its pool, without a worker.
/// A join_node of batches and free lanes would need a worker for that, and wait until a worker ends its body.
/// On a loaded two-core machine, one CPU-bound lane was then idle 15 to 18 % of the time with 14 batches queued
/// (one run each, bench_overlap).
template <GraphFrame Frame, GraphBatch Batch>
class Flow {
 public:
  using Admitted = FrameInFlight<Frame>;
  using Joined = BatchInFlight<Batch>;
  using Runner = StageRunner<Frame, Batch>;

  /// Construct it inside the workers' arena: the tasks of a graph run in the arena in which it was made.
  /// Starts the threads. Each lane calls `lane_start` and then takes batches.
  /// It takes batches even if `lane_start` failed and ended the run, so that they leave the graph.
  Flow(const GraphOptions& options, Statistics& statistics, Gate& gate, Runner& runner)
      : niceness_(options.worker_nice),
        statistics_(statistics),
        gate_(gate),
        runner_(runner),
        files_(std::make_shared<Bytes>(
            file_share(options), statistics.bytes,
            [this](Admitted* frame, ByteCredit, ByteCredit file) { read(*frame, std::move(file)); },
            [this](bool waits) { gate_.short_of_bytes(waits); })),
        bytes_(std::make_shared<Bytes>(
            options.byte_budget - file_share(options), statistics.bytes,
            [this](Admitted* frame, ByteCredit pixels, ByteCredit for_decoding) {
              grant(*frame, std::move(pixels), std::move(for_decoding));
            },
            [this](bool waits) { gate_.short_of_bytes(waits); })),
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

  /// Between reserve() and release(), wait() does not return.
  void reserve() { graph_.reserve_wait(); }
  void release() { graph_.release_wait(); }

  /// On the source's thread, which holds a reservation: admits a frame.
  /// The readers get it when the bytes of its file are granted.
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

  // Posts a task to a thread pool. The graph does not finish before the task is done.
  template <class Task>
  void hand(ThreadPool& pool, Task task) {
    graph_.reserve_wait();
    pool.post([this, task = std::move(task)](int thread) {
      task(thread);
      graph_.release_wait();
    });
  }

  // read() and grant() run on the thread whose call made the frame pass its byte gate.
  // That thread is inside the graph: the source with a reservation, a reader, a worker, a lane or the committer.
  void read(Admitted& frame, ByteCredit file) {
    frame.file = std::move(file);
    runner_.arrive(frame, statistics_.read);
    hand(readers_, [this, &frame](int) {
      const auto need = runner_.read(frame);
      runner_.put(frame, statistics_.bytes);
      bytes_->offer(frame.sequence, &frame, need);
    });
  }

  void grant(Admitted& frame, ByteCredit pixels, ByteCredit for_decoding) {
    frame.frame->set_credit(std::move(pixels));
    frame.decode_memory = std::move(for_decoding);
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
    frame.decode_memory.release();
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
      gate_.give_back(batch->credits);
    });
  }

  const WorkerNiceness niceness_;
  Statistics& statistics_;
  Gate& gate_;
  Runner& runner_;
  std::shared_ptr<Bytes> files_, bytes_;
  tbb_flow::graph graph_;
  std::deque<FrameNode> frame_nodes_;  // deques, because nodes cannot be moved
  JoinNode join_;
  std::deque<BatchNode> batch_nodes_;
  ThreadPool readers_, committer_;  // declared after the nodes: the threads end before the nodes are destroyed
  std::optional<ThreadPool> lanes_;
};

}  // namespace millrace
