#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.hpp"
#include "pipeline/clock.hpp"
#include "pipeline/graph_options.hpp"
#include "pipeline/histogram.hpp"
#include "pipeline/lane_timeline.hpp"

namespace millrace {

/// What a meter counts. A resource with stages of frames and stages of batches counts tasks.
enum class Unit { frames, batches, tasks };
[[nodiscard]] std::string_view to_string(Unit unit);

/// One service, as the what-if model replays it.
struct ServiceSample {
  std::int64_t begun_ns = 0;
  std::int64_t took_ns = 0;
  bool measured = false;        ///< whether the next two are known
  std::int64_t no_core_ns = 0;  ///< the part of `took_ns` without a core
  std::int64_t core_ns = 0;     ///< on cores, of all threads that worked
};

/// The services of one group of frames.
struct GroupReading {
  std::int64_t items = 0;
  std::int64_t failed = 0;   ///< `items` includes them
  std::int64_t busy_ns = 0;  ///< without items that are still in service
};

/// The counts of a meter from its start to one moment. The difference of two readings describes the time between them.
struct Reading {
  std::string name;
  std::string stage{};       ///< of a part of a GPU: the stage that makes its calls; empty if several do
  int servers = 0;           ///< how many items can be in service at a time; 0 for a place where items only wait
  Unit unit = Unit::frames;  ///< what `items`, `failed` and the queue count
  std::int64_t items = 0;    ///< items served
  std::int64_t failed = 0;   ///< items that failed here; `items` includes them
  std::int64_t busy_ns = 0;  ///< time in service, summed over servers; includes items still in service
  /// The part of `busy_ns` whose core times are known: 0 if the system does not provide them.
  /// The next three are parts of it. The rest was spent waiting: for a device, a file, a lock or the own team.
  std::int64_t measured_ns = 0;
  std::int64_t on_core_ns = 0;  ///< the server's thread ran on a core
  std::int64_t no_core_ns = 0;  ///< the server's thread, or a member of its team, waited for a core
  std::int64_t core_ns = 0;     ///< time on cores of all threads that worked; with teams more than `on_core_ns`
  /// Of a GPU: time that the host takes to launch the work of calls that run alone. It overlaps with their work.
  std::int64_t launch_ns = 0;
  std::int64_t starved_ns = 0;    ///< time in which servers were idle and nothing waited, summed over servers
  std::int64_t queued_ns = 0;     ///< time in which items waited, summed over items
  std::int64_t queue_length = 0;  ///< items waiting now
  LatencyHistogram latency{};     ///< time in service per item
  /// Services, each chosen with the same probability. A window has those that began in it.
  std::vector<ServiceSample> samples{};
  std::vector<GroupReading> groups{};  ///< empty if the frames are of one group

  [[nodiscard]] double utilisation(std::int64_t wall_ns) const;  ///< busy / (wall * servers)
  [[nodiscard]] double starved(std::int64_t wall_ns) const;      ///< starved / (wall * servers)
  [[nodiscard]] double mean_queue(std::int64_t wall_ns) const;   ///< queued / wall
  /// Share of the busy time in which the item in service waited for a core; nothing if it was not measured.
  [[nodiscard]] std::optional<double> no_core() const;
  [[nodiscard]] std::optional<double> on_core() const;  ///< likewise, in which it ran
};
[[nodiscard]] Reading operator-(Reading to, const Reading& from);

[[nodiscard]] MachineTime operator-(const MachineTime& to, const MachineTime& from);

/// Servers of one kind (threads of a pool, TBB's workers or lanes) and the stages that run on them.
struct ResourceReading {
  Reading total;
  std::vector<Reading> parts;  ///< one for each stage; empty if the resource is a single stage
  /// An item goes through all parts in turn, on one server. It waits only before the first part,
  /// so the queues and the starvation of parts mean nothing.
  bool in_turn = false;
  /// Busy time is the time that each call takes alone, as for a GPU that several lanes share.
  /// While lanes wait for the resource, they count as busy.
  bool waited_for_by_lanes = false;
  /// Of such a resource: its engines copy, and run no kernels.
  bool copies = false;
};

/// The time that the source had no credits, by what it lacked. At each moment it lacks one of them.
struct CreditWaits {
  std::int64_t frames_ns = 0;      ///< the maximum number of frames was in flight
  std::int64_t read_ahead_ns = 0;  ///< the maximum number of frames was being read
  std::int64_t bytes_ns = 0;       ///< frames waited for bytes: more credits would only make more frames wait
};
[[nodiscard]] CreditWaits operator-(const CreditWaits& to, const CreditWaits& from);

/// When frames came in and went out. In a window, times since its start.
struct Moments {
  std::optional<std::int64_t> first_admitted_ns, last_admitted_ns, first_committed_ns;
  std::int64_t first_committed = 0;              ///< frames of the first commit
  std::int64_t committed_at_last_admission = 0;  ///< frames that had been committed when the last one was admitted
};

/// All statistics of a graph at one moment; `to - from` is the window between two.
struct Snapshot {
  std::int64_t time_ns = 0;    ///< time of the graph's clock; in a window, the length of the window
  std::int64_t planned = 0;    ///< frames admitted
  std::int64_t committed = 0;  ///< frames committed
  std::int64_t in_flight = 0;  ///< frames admitted, and neither committed nor given up; in a window, at its end
  Moments moments;
  LatencyHistogram latency;  ///< of committed frames, from admission to commit
  bool measured = true;      ///< false: the clock measures nothing (Clock::measures); there are no resources
  Reading input;             ///< the source inside next(): busy is the time that the call took, blocked or not
  Reading without_credits;   ///< the source before the gate: busy is the time without credits
  CreditWaits credit_waits;  ///< the same time, by what was missing
  /// Frames that wait for the bytes of their file or, once read, of their pixels.
  /// Frames that only wait for an older frame to be read do not count.
  Reading bytes;
  Reading batch;                           ///< frames that wait for the other frames of their batch
  std::vector<ResourceReading> resources;  ///< read, workers, lane, commit; callers may append more
  std::int64_t cpu_ns = 0;                 ///< CPU time of the process
  MachineTime machine;                     ///< times of its cores, with all programs
  double cores = 0;                        ///< cores that the process may use
  std::int64_t admission_items = 0;        ///< maximum number of frames in flight
};
[[nodiscard]] Snapshot operator-(Snapshot to, const Snapshot& from);

/// The places in which frames or batches wait, in the order of the flow. They belong to the snapshot.
[[nodiscard]] std::vector<const Reading*> waiting_places(const Snapshot& snapshot);

/// The parts of a run in which the pipeline fills, works at its own rate, and drains. Times that do not exist are empty.
struct Phases {
  std::optional<std::int64_t> fill_ns;    ///< from the first admission to the first commit
  std::optional<std::int64_t> steady_ns;  ///< from the first commit to the last admission
  std::optional<std::int64_t> drain_ns;   ///< from the last admission to the end
  std::optional<double> steady_rate;      ///< frames/s that were committed between filling and draining
};
/// `window` begins before the first admission and ends after the last commit.
[[nodiscard]] Phases phases_of(const Snapshot& window);

/// The cores that other programs and other guests of the hypervisor took from the process, on average over a window.
/// Nothing if the system does not tell.
[[nodiscard]] std::optional<double> other_cores(const Snapshot& window);

/// If some thread of the machine waits for a disk for a larger share of the time, a disk may limit a run. Stalls of a few
/// percent come from reading files.
inline constexpr double slow_disk_stall = 0.3;

/// The begin of a service: the time, and the times of the thread that serves.
struct Service {
  std::int64_t begun_ns = 0;
  std::optional<CoreTime> begun{};
};

/// Counts events at one place, from any thread. Memory is fixed.
/// An event costs about 50 ns, and 3 us with the core times of a SystemClock.
/// If the clock measures nothing, events do nothing.
class Meter {
 public:
  /// `servers` is the maximum number of items in service at a time.
  /// `within`, if not null, counts every event as well. It and `clock` must outlive the meter.
  Meter(std::string name, int servers, const Clock& clock, Unit unit = Unit::frames, Meter* within = nullptr);

  /// From now on, `trace` shows the queue, if it is not null. It must outlive the meter.
  void show_queue(const Trace* trace) noexcept { trace_ = trace; }
  /// Before the first event: from now on, it counts this number of groups apart.
  void tell_groups_apart(int groups) {
    if (groups > 1) reading_.groups.resize(static_cast<std::size_t>(groups));
  }

  // arrive(), leave() and end() return the time.
  std::int64_t arrive(int items = 1) noexcept;                           ///< items begin to wait
  std::int64_t leave(int items = 1) noexcept { return arrive(-items); }  ///< waiting items leave without service
  [[nodiscard]] Service begin() noexcept;  ///< a waiting item enters service on this thread
  /// The service ends; on the thread that began it. `group` is that of its frames.
  std::int64_t end(const Service& service, bool failed, int group = 0) noexcept;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const Clock& clock() const noexcept { return clock_; }
  [[nodiscard]] Reading read() const;

 private:
  std::int64_t enter() noexcept;
  std::int64_t leave_service(std::int64_t begun_ns, const std::optional<CoreTime>& used, bool failed,
                             int group) noexcept;
  void show(std::int64_t queue_length, std::int64_t time_ns) const noexcept {
    if (trace_ != nullptr) trace_->queue(name_, queue_length, time_ns);
  }
  void advance(std::int64_t now_ns) noexcept;
  void integrate(Reading& reading, std::int64_t elapsed_ns) const noexcept;
  void sample(const ServiceSample& service) noexcept;

  const std::string name_;
  const Clock& clock_;
  const bool measures_;
  Meter* const within_;
  const Trace* trace_ = nullptr;
  mutable std::mutex mutex_;
  Reading reading_;
  std::minstd_rand random_;
  std::int64_t in_service_ = 0;
  std::int64_t since_ns_;
};

/// The meters of one graph. If there is a `trace`, it shows the queues of those where frames or batches wait.
struct Statistics {
  Statistics(const GraphOptions& options, const std::vector<std::string>& frame_stages,
             const std::vector<std::string>& lane_stages, const std::vector<std::string>& batch_stages,
             const Clock& clock, const Trace* trace = nullptr);

  /// From any thread at any time; takes tens of microseconds.
  [[nodiscard]] Snapshot snapshot() const;
  /// Returns the time of the admission.
  std::int64_t count_planned() noexcept;
  /// `admitted_ns` has the time of admission of each frame. Returns the number of all committed frames.
  std::int64_t count_committed(std::span<const std::int64_t> admitted_ns) noexcept;
  /// Frames have left the pipeline, committed or given up.
  void count_left(std::int64_t frames) noexcept;
  /// Returns the meter of every place where a frame can be, in the order of the flow.
  [[nodiscard]] std::vector<const Meter*> meters_of_frames() const;
  [[nodiscard]] const Clock& clock() const noexcept { return clock_; }

  Meter input, without_credits, read, bytes, workers, batch, lane, commit;
  std::deque<Meter> frame_stages, lane_stages, batch_stages;  // deques, because meters cannot be moved
  LaneTimeline timeline;                                      ///< stays empty if the clock measures nothing

 private:
  [[nodiscard]] std::vector<ResourceReading> resources() const;

  const Clock& clock_;
  const double cores_;
  const std::int64_t admission_items_;
  mutable std::mutex mutex_;
  std::int64_t planned_ = 0;
  std::int64_t committed_ = 0;
  std::int64_t left_ = 0;
  Moments moments_;
  LatencyHistogram latency_;
};

}  // namespace millrace
