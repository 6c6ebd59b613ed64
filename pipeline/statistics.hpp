#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/clock.hpp"
#include "pipeline/graph_options.hpp"
#include "pipeline/histogram.hpp"

namespace millrace {

/// What a place counts. A resource whose stages are some of frames and some of batches counts each service as a task.
enum class Unit { frames, batches, tasks };
[[nodiscard]] std::string_view to_string(Unit unit);

/// What a meter counted from its start to one moment. Differences of two readings describe the time between.
struct Reading {
  std::string name;
  int servers = 0;                ///< how many items can be in service at a time; 0 for a place where items only wait
  Unit unit = Unit::frames;       ///< what `items`, `failed` and the queue count
  std::int64_t items = 0;         ///< served
  std::int64_t failed = 0;        ///< of these, how many failed here
  std::int64_t busy_ns = 0;       ///< time in service, summed over servers, items still in service included
  std::int64_t starved_ns = 0;    ///< time servers were idle with nothing waiting, summed over servers
  std::int64_t queued_ns = 0;     ///< time items waited before it, summed over items
  std::int64_t queue_length = 0;  ///< items waiting now
  LatencyHistogram latency;       ///< time in service of each item

  [[nodiscard]] double utilisation(std::int64_t wall_ns) const;  ///< busy / (wall * servers)
  [[nodiscard]] double starved(std::int64_t wall_ns) const;      ///< starved / (wall * servers)
  [[nodiscard]] double mean_queue(std::int64_t wall_ns) const;   ///< queued / wall
};
[[nodiscard]] Reading operator-(Reading to, const Reading& from);

/// Servers that work on one kind of thing: own threads, TBB's workers or the lanes, with the stages that run on them.
struct ResourceReading {
  Reading total;
  std::vector<Reading> parts;  ///< empty where the resource is one stage
  /// An item goes through all parts in turn, on one server: it waits before the first only, and what parts say of
  /// queues and starvation means nothing.
  bool in_turn = false;
  /// Its busy time is what its work takes alone, and who waits for it counts as busy too: lanes that wait for a GPU.
  bool waited_for_by_lanes = false;
};

/// All statistics of a graph at one moment; `to - from` is the window between two.
struct Snapshot {
  std::int64_t time_ns = 0;    ///< of the graph's clock; in a window its length
  std::int64_t planned = 0;    ///< frames admitted
  std::int64_t committed = 0;  ///< frames committed
  Reading input;               ///< the source inside next(): busy is the time it took or blocked
  Reading without_credits;     ///< the source before the gate: busy is the time without credits
  Reading bytes;               ///< frames waiting for bytes: for their file, or read, for their pixels (not for
                               ///< an older frame to be read)
  Reading batch;               ///< frames waiting for the others of their batch
  std::vector<ResourceReading> resources;  ///< read, workers, lane, commit; callers may append further ones
  std::int64_t cpu_ns = 0;                 ///< CPU time of the process
  double cores = 0;                        ///< cores the process may use
  std::int64_t admission_items = 0;        ///< frames the gate lets in
};
[[nodiscard]] Snapshot operator-(Snapshot to, const Snapshot& from);

/// Counts what happens at one place, from any thread. Memory is fixed; an event costs about 50 ns.
class Meter {
 public:
  /// `servers`: how many items can be in service at a time; `within` (may be null) counts every event as well.
  Meter(std::string name, int servers, const Clock& clock, Unit unit = Unit::frames, Meter* within = nullptr);

  void arrive(int items = 1) noexcept;                    ///< items begin to wait
  void leave(int items = 1) noexcept;                     ///< waiting items go on without service
  [[nodiscard]] std::int64_t begin() noexcept;            ///< a waiting item goes into service; returns the time
  void end(std::int64_t begun_ns, bool failed) noexcept;  ///< the service that began at `begun_ns` is over

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] Reading read() const;

 private:
  void advance(std::int64_t now_ns) noexcept;
  void integrate(Reading& reading, std::int64_t elapsed_ns) const noexcept;

  const std::string name_;
  const Clock& clock_;
  Meter* const within_;
  mutable std::mutex mutex_;
  Reading reading_;
  std::int64_t in_service_ = 0;
  std::int64_t since_ns_;
};

/// The meters of one graph.
struct Statistics {
  Statistics(const GraphOptions& options, const std::vector<std::string>& frame_stages,
             const std::vector<std::string>& lane_stages, const std::vector<std::string>& batch_stages,
             const Clock& clock);

  /// Cheap (tens of microseconds), from any thread at any time.
  [[nodiscard]] Snapshot snapshot() const;
  void count_planned() noexcept;
  void count_committed(std::int64_t frames) noexcept;
  /// Every place a frame can be held at, in the order of the flow.
  [[nodiscard]] std::vector<const Meter*> places() const;

  Meter input, without_credits, read, bytes, workers, batch, lane, commit;
  std::deque<Meter> frame_stages, lane_stages, batch_stages;  // deques, because meters do not move

 private:
  const Clock& clock_;
  const double cores_;
  const std::int64_t admission_items_;
  mutable std::mutex mutex_;
  std::int64_t planned_ = 0;
  std::int64_t committed_ = 0;
};

}  // namespace millrace
