#include "pipeline/simulation.hpp"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>

namespace millrace {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();
constexpr double instant = 1e-12;  // seconds; shorter times are rounding errors

// Longer times than 285 years do not fit.
std::int64_t ns(double seconds) { return static_cast<std::int64_t>(std::llround(std::min(seconds, 9e9) * 1e9)); }

/// The clock of the simulation. Before an event of a meter, the simulation says whose event it is.
class SimulatedClock final : public Clock {
 public:
  [[nodiscard]] std::int64_t now_ns() const noexcept override { return ns(now_s); }
  [[nodiscard]] std::optional<CoreTime> core_time() const noexcept override { return thread; }
  [[nodiscard]] MachineTime machine_time() const override {
    return {static_cast<int>(cores), ns(busy_s), 0, std::nullopt, 0, 0, 0};
  }

  double now_s = 0, busy_s = 0, cores = 0;
  CoreTime thread{};
};

/// A thread, with its team, that works on one item at a time.
struct Server {
  enum class Phase { idle, computing, launching, on_device, on_disk, waiting };
  Phase phase = Phase::idle;
  double weight = 1;
  int gpu = 0;
  Cost left{};                        // of the item; `wait_s` is the length of the wait
  double launch_s = 0, device_s = 0;  // of the item, from its beginning
  double wait_until_s = 0;
  double on_core_s = 0, core_s = 0, delayed_s = 0;  // of its thread, of all its threads, of its thread; since the start
  std::function<void()> done;

  [[nodiscard]] bool on_core() const { return phase == Phase::computing || phase == Phase::launching; }

  // The members of a team wait for each other. So the thread is asleep for half of the time that it cannot progress,
  // and then a member waits for a core.
  [[nodiscard]] CoreTime time() const {
    const bool team = core_s > on_core_s;
    const double own_delay_s = team ? delayed_s / 2 : delayed_s;
    return {ns(on_core_s), ns(own_delay_s), ns(core_s - on_core_s), ns(team ? delayed_s / 2 : 0)};
  }
};

class Simulation {
 public:
  explicit Simulation(const PipelineModel& pipeline)
      : p_(pipeline),
        statistics_(options(pipeline), names(pipeline.frame_stages), names(pipeline.lane_stages),
                    names(pipeline.batch_stages), clock_) {
    clock_.cores = p_.cores;
    source_.resize(1);
    readers_.resize(static_cast<std::size_t>(p_.read_threads));
    workers_.resize(static_cast<std::size_t>(p_.workers));
    lanes_.resize(static_cast<std::size_t>(p_.lanes));
    committers_.resize(1);
    for (auto& worker : workers_) worker.weight = p_.worker_weight;
    for (std::size_t i = 0; i < lanes_.size(); ++i) lanes_[i].gpu = static_cast<int>(i) % p_.gpus;
    for (const auto& stage : p_.lane_stages)
      kernels_.push_back(
          {.name = stage.name + " kernels", .stage = stage.name, .servers = p_.gpus, .unit = Unit::tasks});
    frame_queues_.resize(p_.frame_stages.size());
    batch_queues_.resize(p_.batch_stages.size());
  }

  Outcome run() {
    Outcome outcome;
    outcome.begun = snapshot();
    start_idle();
    while (committed_ < p_.frames) {
      advance();
      start_idle();
    }
    outcome.finished = snapshot();
    outcome.frames_per_s = p_.frames / clock_.now_s;
    return outcome;
  }

 private:
  static GraphOptions options(const PipelineModel& p) {
    GraphOptions it;
    it.max_batch = p.batch;
    it.admission_items = p.admission;
    it.read_threads = p.read_threads;
    it.lanes = p.lanes;
    it.workers = p.workers;
    return it;
  }
  static std::vector<std::string> names(const std::vector<StageCosts>& stages) {
    std::vector<std::string> all;
    for (const auto& stage : stages) all.push_back(stage.name);
    return all;
  }

  Snapshot snapshot() {
    Snapshot now = statistics_.snapshot();
    now.cpu_ns = ns(own_core_s_);
    now.cores = p_.cores;
    add_gpu(now);
    return now;
  }

  // As the program does it: busy time is the sum of what the calls need alone.
  void add_gpu(Snapshot& now) const {
    ResourceReading gpu{{.name = "GPU", .servers = p_.gpus, .unit = Unit::tasks}, kernels_, false, true};
    for (const auto& part : kernels_) {
      gpu.total.busy_ns += part.busy_ns;
      gpu.total.launch_ns += part.launch_ns;
      gpu.total.items += part.items;
    }
    if (gpu.total.busy_ns > 0) now.resources.push_back(std::move(gpu));
  }

  // Depends on the item and the stage alone.
  Cost cost_of(const StageCosts& stage, std::size_t item) const {
    std::seed_seq seed{p_.seed, static_cast<std::uint64_t>(item),
                       static_cast<std::uint64_t>(std::hash<std::string>{}(stage.name))};
    std::minstd_rand random(seed);
    if (!stage.recorded.empty())
      return stage.recorded[std::uniform_int_distribution<std::size_t>(0, stage.recorded.size() - 1)(random)];
    if (p_.spread <= 0) return stage.mean;
    const double s = std::sqrt(std::log(1 + p_.spread * p_.spread));
    const double factor = std::lognormal_distribution<double>(-s * s / 2, s)(random);
    const Cost& mean = stage.mean;
    return {mean.core_s * factor, mean.threads,           mean.device_s * factor,
            mean.wait_s * factor, mean.launch_s * factor, mean.disk_s * factor};
  }

  // Puts an item into service. The meter gets its events on behalf of the server.
  void serve(Server& server, Meter& meter, const StageCosts& costs, std::size_t item, std::function<void()> done) {
    clock_.thread = server.time();
    const Service service = meter.begin();
    server.left = cost_of(costs, item);
    server.left.threads = std::max(server.left.threads, 1.0);
    server.launch_s = server.left.launch_s;
    server.device_s = server.left.device_s;
    server.phase = Server::Phase::computing;
    server.done = [this, &server, &meter, service, done = std::move(done)] {
      clock_.thread = server.time();
      meter.end(service, false);
      done();
    };
  }

  // Moves on to the phase that has work left. Returns false if the item is done.
  bool next_phase(Server& server) const {
    using Phase = Server::Phase;
    if (server.phase == Phase::computing && server.left.core_s <= instant) server.phase = Phase::launching;
    if (server.phase == Phase::launching && server.left.launch_s <= instant) server.phase = Phase::on_device;
    if (server.phase == Phase::on_device && server.left.device_s <= instant) server.phase = Phase::on_disk;
    if (server.phase == Phase::on_disk && server.left.disk_s <= instant) {
      server.phase = Phase::waiting;
      server.wait_until_s = clock_.now_s + server.left.wait_s;
    }
    return server.phase != Phase::waiting || server.wait_until_s - clock_.now_s > instant;
  }

  static Server* idle(std::vector<Server>& pool) {
    const auto it = std::ranges::find(pool, Server::Phase::idle, &Server::phase);
    return it == pool.end() ? nullptr : &*it;
  }

  void start_idle() {
    start_source();
    while (!read_queue_.empty()) {
      Server* const reader = idle(readers_);
      if (reader == nullptr) break;
      const auto frame = pop(read_queue_);
      serve(*reader, statistics_.read, p_.read, frame, [this, frame] { after_read(frame); });
    }
    while (start_worker()) {
    }
    while (!lane_queue_.empty()) {
      Server* const lane = idle(lanes_);
      if (lane == nullptr) break;
      const auto batch = pop(lane_queue_);
      clock_.thread = lane->time();
      lane_stage(*lane, batch, 0, statistics_.lane.begin());
    }
    if (!commit_queue_.empty() && idle(committers_) != nullptr) {
      const auto batch = pop(commit_queue_);
      serve(committers_.front(), statistics_.commit, p_.commit, batch, [this, batch] { committed(batch); });
    }
  }

  void start_source() {
    Server& source = source_.front();
    if (source.phase != Server::Phase::idle || admitted_ == p_.frames) return;
    if (in_flight_ == p_.admission) {
      if (!without_credits_) {
        clock_.thread = source.time();
        statistics_.without_credits.arrive();
        without_credits_ = statistics_.without_credits.begin();
      }
      return;
    }
    if (without_credits_) {
      clock_.thread = source.time();
      statistics_.without_credits.end(*without_credits_, false);
      without_credits_.reset();
    }
    ++in_flight_;
    const auto frame = static_cast<std::size_t>(admitted_++);
    statistics_.input.arrive();
    serve(source, statistics_.input, p_.input, frame, [this, frame] {
      admitted_ns_.push_back(statistics_.count_planned());
      statistics_.read.arrive();
      read_queue_.push_back(frame);
    });
  }

  // Later stages first, as in the graph. Returns whether a task was started.
  bool start_worker() {
    Server* const worker = idle(workers_);
    if (worker == nullptr) return false;
    for (std::size_t i = batch_queues_.size(); i-- > 0;) {
      if (batch_queues_[i].empty()) continue;
      const auto batch = pop(batch_queues_[i]);
      serve(*worker, statistics_.batch_stages[i], p_.batch_stages[i], batch, [this, i, batch] {
        free_pixels(p_.batch_stages[i].name, size_of(batch));
        after_batch_stage(i + 1, batch);
      });
      return true;
    }
    for (std::size_t i = frame_queues_.size(); i-- > 0;) {
      if (frame_queues_[i].empty()) continue;
      const auto frame = pop(frame_queues_[i]);
      serve(*worker, statistics_.frame_stages[i], p_.frame_stages[i], frame, [this, i, frame] {
        free_pixels(p_.frame_stages[i].name, 1);
        after_frame_stage(i + 1, frame);
      });
      return true;
    }
    return false;
  }

  void after_read(std::size_t frame) {
    if (p_.frames_in_memory <= 0) return after_frame_stage(0, frame);
    was_read_.resize(std::max(was_read_.size(), frame + 1));
    was_read_[frame] = true;
    grant_pixels();
  }

  // In the order of admission, as in the graph.
  void grant_pixels() {
    while (granted_ < was_read_.size() && was_read_[granted_] && holding_ < p_.frames_in_memory) {
      ++holding_;
      after_frame_stage(0, granted_++);
    }
  }

  void free_pixels(const std::string& after, int frames) {
    if (p_.frames_in_memory <= 0 || after != p_.pixels_until) return;
    holding_ -= frames;
    grant_pixels();
  }

  void after_frame_stage(std::size_t next, std::size_t frame) {
    if (next < p_.frame_stages.size()) {
      statistics_.frame_stages[next].arrive();
      frame_queues_[next].push_back(frame);
      return;
    }
    statistics_.batch.arrive();
    const std::size_t batch = frame / static_cast<std::size_t>(p_.batch);
    joined_.resize(std::max(joined_.size(), batch + 1));
    if (++joined_[batch] < size_of(batch)) return;
    statistics_.batch.leave(joined_[batch]);
    if (p_.lane_stages.empty()) return after_batch_stage(0, batch);
    statistics_.lane.arrive();
    lane_queue_.push_back(batch);
  }

  void lane_stage(Server& lane, std::size_t batch, std::size_t i, const Service& whole) {
    statistics_.lane_stages[i].arrive();
    const Cost cost = cost_of(p_.lane_stages[i], batch);
    const auto device_ns = cost.device_s > 0 ? ns(cost.device_s) : 0;
    kernels_[i].busy_ns += device_ns;
    kernels_[i].launch_ns += device_ns > 0 ? ns(cost.launch_s) : 0;
    kernels_[i].items += device_ns > 0 ? 1 : 0;
    serve(lane, statistics_.lane_stages[i], p_.lane_stages[i], batch, [this, &lane, batch, i, whole] {
      free_pixels(p_.lane_stages[i].name, size_of(batch));
      if (i + 1 < p_.lane_stages.size()) return lane_stage(lane, batch, i + 1, whole);
      clock_.thread = lane.time();
      statistics_.lane.end(whole, false);
      after_batch_stage(0, batch);
    });
  }

  void after_batch_stage(std::size_t next, std::size_t batch) {
    if (next < p_.batch_stages.size()) {
      statistics_.batch_stages[next].arrive();
      batch_queues_[next].push_back(batch);
      return;
    }
    statistics_.commit.arrive();
    commit_queue_.push_back(batch);
  }

  void committed(std::size_t batch) {
    committed_ += size_of(batch);
    in_flight_ -= size_of(batch);
    free_pixels(p_.commit.name, size_of(batch));
    // Frames are admitted in their order.
    const auto first = admitted_ns_.begin() + static_cast<std::ptrdiff_t>(batch * static_cast<std::size_t>(p_.batch));
    statistics_.count_committed({first, first + size_of(batch)});
  }

  [[nodiscard]] int size_of(std::size_t batch) const {
    return std::min(p_.batch, p_.frames - static_cast<int>(batch) * p_.batch);
  }
  static std::size_t pop(std::deque<std::size_t>& queue) {
    const auto front = queue.front();
    queue.pop_front();
    return front;
  }

  /// How fast a busy server works: on a core, in seconds of GPU work per second, launched and done, and on the disk.
  struct Rates {
    Server* server = nullptr;
    double core = 0, launched = 0, done = 0, disk = 0;
    double backlog_s = 0;  // GPU work that was launched and is not done
  };

  // Moves the clock to the next moment at which a rate changes.
  void advance() {
    std::vector<Rates> busy;
    for (auto* pool : {&source_, &readers_, &workers_, &lanes_, &committers_}) {
      for (auto& server : *pool) {
        if (server.phase != Server::Phase::idle) busy.push_back({&server});
      }
    }
    if (busy.empty()) throw std::logic_error("the simulated pipeline stands still: the gate holds less than a batch");
    const double level = share_level(busy);
    for (Rates& it : busy) use_core(it, level);
    for (int gpu = 0; gpu < p_.gpus; ++gpu) share_gpu(busy, gpu);
    share_disk(busy);
    double step_s = never;
    for (const Rates& it : busy) step_s = std::min(step_s, next_change_s(it));
    step_s = std::max(step_s, 0.0);
    clock_.now_s += step_s;
    clock_.busy_s += step_s * p_.others * std::min(1.0, level);
    std::vector<Server*> ended;
    for (const Rates& it : busy) {
      progress(it, step_s);
      if (!next_phase(*it.server)) ended.push_back(it.server);
    }
    for (Server* server : ended) {
      server->phase = Server::Phase::idle;
      const auto done = std::move(server->done);
      done();
    }
  }

  static void use_core(Rates& it, double level) {
    const Server& server = *it.server;
    if (server.on_core()) it.core = std::min(1.0, level * server.weight);
    if (server.phase == Server::Phase::launching) {
      it.launched = it.core * server.device_s / server.launch_s;
      const double launched_s = server.device_s * (1 - server.left.launch_s / server.launch_s);
      it.backlog_s = std::max(launched_s - (server.device_s - server.left.device_s), 0.0);
    } else if (server.phase == Server::Phase::on_device) {
      it.backlog_s = server.left.device_s;
    }
  }

  // All get the same share of the GPU, except those that have launched too little for it.
  static void share_gpu(std::vector<Rates>& busy, int gpu) {
    std::vector<std::pair<double, Rates*>> users;  // with the most that each can use
    for (Rates& it : busy) {
      if (it.server->gpu != gpu || (it.backlog_s <= instant && it.launched <= 0)) continue;
      users.emplace_back(it.backlog_s > instant ? 1.0 : std::min(it.launched, 1.0), &it);
    }
    std::ranges::sort(users, {}, [](const auto& user) { return user.first; });
    double free = 1;
    for (std::size_t i = 0; i < users.size(); ++i) {
      users[i].second->done = std::min(users[i].first, free / static_cast<double>(users.size() - i));
      free -= users[i].second->done;
    }
  }

  static void share_disk(std::vector<Rates>& busy) {
    const auto uses = [](const Rates& it) { return it.server->phase == Server::Phase::on_disk; };
    const auto users = static_cast<double>(std::ranges::count_if(busy, uses));
    for (Rates& it : busy) it.disk = uses(it) ? 1 / users : 0;
  }

  double next_change_s(const Rates& it) const {
    const Server& server = *it.server;
    switch (server.phase) {
      case Server::Phase::computing:
        return server.left.core_s / (server.left.threads * it.core);
      case Server::Phase::launching: {
        const double launches_s = server.left.launch_s / it.core;
        return it.backlog_s > instant && it.done > it.launched
                   ? std::min(launches_s, it.backlog_s / (it.done - it.launched))
                   : launches_s;
      }
      case Server::Phase::on_device:
        return server.left.device_s / it.done;
      case Server::Phase::on_disk:
        return server.left.disk_s / it.disk;
      case Server::Phase::waiting:
      case Server::Phase::idle:
        break;
    }
    return server.wait_until_s - clock_.now_s;
  }

  void progress(const Rates& it, double step_s) {
    Server& server = *it.server;
    server.left.device_s -= step_s * it.done;
    server.left.disk_s -= step_s * it.disk;
    if (!server.on_core()) return;
    const double ran_s = step_s * it.core;
    double worked_s = ran_s;
    if (server.phase == Server::Phase::computing) {
      worked_s *= server.left.threads;
      server.left.core_s -= worked_s;
    } else {
      server.left.launch_s -= worked_s;
    }
    server.on_core_s += ran_s;
    server.core_s += worked_s;
    server.delayed_s += step_s - ran_s;
    own_core_s_ += worked_s;
    clock_.busy_s += worked_s;
  }

  // A thread with weight w gets min(1, level * w) of a core, so that all cores are used, or all threads have one.
  double share_level(const std::vector<Rates>& busy) const {
    // Threads by weight. There are two weights: that of workers and 1, that of all others.
    double light = 0, full = p_.others;
    for (const Rates& it : busy) {
      if (!it.server->on_core()) continue;
      const bool computing = it.server->phase == Server::Phase::computing;
      (it.server->weight < 1 ? light : full) += computing ? it.server->left.threads : 1;
    }
    if (full + light <= p_.cores) return 1 / p_.worker_weight;
    // If threads of full weight have a whole core each, those of less weight share the rest.
    if (const double level = light > 0 ? (p_.cores - full) / (light * p_.worker_weight) : 0; level >= 1) return level;
    return p_.cores / (full + light * p_.worker_weight);
  }

  const PipelineModel& p_;
  SimulatedClock clock_;
  Statistics statistics_;
  std::vector<Server> source_, readers_, workers_, lanes_, committers_;
  std::deque<std::size_t> read_queue_, lane_queue_, commit_queue_;
  std::vector<std::deque<std::size_t>> frame_queues_, batch_queues_;
  std::vector<int> joined_;
  std::vector<bool> was_read_;             // by frame
  std::size_t granted_ = 0;                // frames that have got memory for their pixels
  int holding_ = 0;                        // frames that still have it
  std::vector<std::int64_t> admitted_ns_;  // by frame
  std::vector<Reading> kernels_;           // on the GPUs, by stage of the lanes
  std::optional<Service> without_credits_;
  int admitted_ = 0, in_flight_ = 0, committed_ = 0;
  double own_core_s_ = 0;
};

}  // namespace

Outcome simulate(const PipelineModel& pipeline) { return Simulation(pipeline).run(); }

}  // namespace millrace
