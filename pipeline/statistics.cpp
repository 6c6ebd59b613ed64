#include "pipeline/statistics.hpp"

#include <algorithm>
#include <utility>

#include "pipeline/cores.hpp"

namespace millrace {
namespace {

constexpr std::size_t max_samples = 128;  // 4 kB for each meter

Unit unit_of(std::size_t frame_stages, std::size_t batch_stages) {
  if (frame_stages > 0 && batch_stages > 0) return Unit::tasks;
  return batch_stages > 0 ? Unit::batches : Unit::frames;
}

double ratio(std::int64_t part_ns, double whole_ns) {
  return whole_ns > 0 ? static_cast<double>(part_ns) / whole_ns : 0;
}

std::vector<Reading> read_all(const std::deque<Meter>& first, const std::deque<Meter>& second = {}) {
  std::vector<Reading> readings;
  for (const auto& meter : first) readings.push_back(meter.read());
  for (const auto& meter : second) readings.push_back(meter.read());
  return readings;
}

}  // namespace

std::string_view to_string(Unit unit) {
  switch (unit) {
    case Unit::frames:
      return "pictures";
    case Unit::batches:
      return "batches";
    case Unit::tasks:
      return "tasks";
  }
  return "";
}

MachineTime operator-(const MachineTime& to, const MachineTime& from) {
  // Counters of the system can be missing, or fall behind by a tick.
  const auto minus = [](const std::optional<std::int64_t>& later, const std::optional<std::int64_t>& earlier) {
    return later && earlier ? std::optional(std::max<std::int64_t>(*later - *earlier, 0)) : std::nullopt;
  };
  return {to.cores,
          minus(to.busy_ns, from.busy_ns),
          minus(to.stolen_ns, from.stolen_ns),
          minus(to.throttled_ns, from.throttled_ns),
          minus(to.cpu_stall_ns, from.cpu_stall_ns),
          minus(to.memory_stall_ns, from.memory_stall_ns),
          minus(to.io_stall_ns, from.io_stall_ns),
          minus(to.gpu_heat_ns, from.gpu_heat_ns),
          minus(to.gpu_power_ns, from.gpu_power_ns)};
}

double Reading::utilisation(std::int64_t wall_ns) const {
  return ratio(busy_ns, static_cast<double>(wall_ns) * servers);
}
double Reading::starved(std::int64_t wall_ns) const {
  return ratio(starved_ns, static_cast<double>(wall_ns) * servers);
}
double Reading::mean_queue(std::int64_t wall_ns) const { return ratio(queued_ns, static_cast<double>(wall_ns)); }

std::optional<double> Reading::no_core() const {
  return measured_ns > 0 ? std::optional(ratio(no_core_ns, static_cast<double>(measured_ns))) : std::nullopt;
}
std::optional<double> Reading::on_core() const {
  return measured_ns > 0 ? std::optional(ratio(on_core_ns, static_cast<double>(measured_ns))) : std::nullopt;
}

// `queue_length` is no sum over time: a window has the value at its end.
Reading operator-(Reading to, const Reading& from) {
  to.items -= from.items;
  to.failed -= from.failed;
  to.busy_ns -= from.busy_ns;
  to.measured_ns -= from.measured_ns;
  to.on_core_ns -= from.on_core_ns;
  to.no_core_ns -= from.no_core_ns;
  to.core_ns -= from.core_ns;
  to.launch_ns -= from.launch_ns;
  to.starved_ns -= from.starved_ns;
  to.queued_ns -= from.queued_ns;
  to.latency -= from.latency;
  for (std::size_t i = 0; i < std::min(to.groups.size(), from.groups.size()); ++i) {
    to.groups[i].items -= from.groups[i].items;
    to.groups[i].failed -= from.groups[i].failed;
    to.groups[i].busy_ns -= from.groups[i].busy_ns;
  }
  return to;
}

CreditWaits operator-(const CreditWaits& to, const CreditWaits& from) {
  return {to.frames_ns - from.frames_ns, to.read_ahead_ns - from.read_ahead_ns, to.bytes_ns - from.bytes_ns};
}

// `in_flight` and `moments` are no sums: a window has the values at its end.
Snapshot operator-(Snapshot to, const Snapshot& from) {
  to.time_ns -= from.time_ns;
  for (auto* moment : {&to.moments.first_admitted_ns, &to.moments.last_admitted_ns, &to.moments.first_committed_ns}) {
    if (*moment) **moment -= from.time_ns;
  }
  to.planned -= from.planned;
  to.committed -= from.committed;
  to.latency -= from.latency;
  const auto window_of = [&](Reading& reading, const Reading& earlier) {
    reading = std::move(reading) - earlier;
    // The first call for input lasts until the models are warm. It began before the window.
    std::erase_if(reading.samples, [&](const ServiceSample& it) { return it.begun_ns < from.time_ns; });
  };
  window_of(to.input, from.input);
  to.without_credits = std::move(to.without_credits) - from.without_credits;
  to.credit_waits = to.credit_waits - from.credit_waits;
  to.bytes = std::move(to.bytes) - from.bytes;
  to.batch = std::move(to.batch) - from.batch;
  // Resources and parts match by position: all snapshots of a run list them in the same order.
  for (std::size_t r = 0; r < std::min(to.resources.size(), from.resources.size()); ++r) {
    auto& resource = to.resources[r];
    const auto& earlier = from.resources[r];
    window_of(resource.total, earlier.total);
    for (std::size_t p = 0; p < std::min(resource.parts.size(), earlier.parts.size()); ++p) {
      window_of(resource.parts[p], earlier.parts[p]);
    }
  }
  to.cpu_ns -= from.cpu_ns;
  to.machine = to.machine - from.machine;
  return to;
}

std::vector<const Reading*> waiting_places(const Snapshot& snapshot) {
  std::vector<const Reading*> places;
  const auto add = [&](std::string_view name) {
    for (const auto& resource : snapshot.resources) {
      if (resource.total.name == name) places.push_back(&resource.total);
    }
  };
  const auto add_stages = [&](Unit unit) {
    for (const auto& resource : snapshot.resources) {
      if (resource.in_turn || resource.waited_for_by_lanes) continue;
      for (const Reading& part : resource.parts) {
        if (part.unit == unit) places.push_back(&part);
      }
    }
  };
  add("read");
  places.push_back(&snapshot.bytes);
  add_stages(Unit::frames);
  places.push_back(&snapshot.batch);
  add("lane");
  add_stages(Unit::batches);
  add("commit");
  return places;
}

Phases phases_of(const Snapshot& window) {
  const Moments& at = window.moments;
  Phases phases;
  if (at.first_admitted_ns && at.first_committed_ns) phases.fill_ns = *at.first_committed_ns - *at.first_admitted_ns;
  if (at.last_admitted_ns) phases.drain_ns = window.time_ns - *at.last_admitted_ns;
  const auto between = at.committed_at_last_admission - at.first_committed;
  // Without a commit in between, nobody knows the rate.
  if (!at.first_committed_ns || between <= 0 || *at.last_admitted_ns <= *at.first_committed_ns) return phases;
  phases.steady_ns = *at.last_admitted_ns - *at.first_committed_ns;
  phases.steady_rate = static_cast<double>(between) * 1e9 / static_cast<double>(*phases.steady_ns);
  return phases;
}

std::optional<double> other_cores(const Snapshot& window) {
  const auto wall_ns = static_cast<double>(window.time_ns);
  if (!window.machine.busy_ns || wall_ns <= 0) return std::nullopt;
  const auto taken_ns = std::max<std::int64_t>(*window.machine.busy_ns - window.cpu_ns, 0);
  const double taken = static_cast<double>(taken_ns + window.machine.stolen_ns.value_or(0)) / wall_ns;
  // With a quota, the process cannot use all cores anyway. Only those that others take from its quota count.
  return std::clamp(taken - std::max(window.machine.cores - window.cores, 0.0), 0.0, std::max(taken, 0.0));
}

Meter::Meter(std::string name, int servers, const Clock& clock, Unit unit, Meter* within)
    : name_(std::move(name)), clock_(clock), measures_(clock.measures()), within_(within), since_ns_(clock.now_ns()) {
  reading_.name = name_;
  reading_.servers = servers;
  reading_.unit = unit;
  reading_.samples.reserve(max_samples);  // services do not allocate
}

void Meter::advance(std::int64_t now_ns) noexcept {
  integrate(reading_, now_ns - since_ns_);
  since_ns_ = now_ns;
}

void Meter::integrate(Reading& reading, std::int64_t elapsed_ns) const noexcept {
  reading.busy_ns += in_service_ * elapsed_ns;
  reading.queued_ns += reading.queue_length * elapsed_ns;
  // With work in the queue an idle server is not starved: no thread has picked the work up yet.
  if (reading.queue_length == 0) {
    reading.starved_ns += std::max<std::int64_t>(reading.servers - in_service_, 0) * elapsed_ns;
  }
}

// Events read the clock under the lock, so that time never runs backwards from one event to the next.
std::int64_t Meter::arrive(int items) noexcept {
  if (!measures_) return clock_.now_ns();
  std::int64_t now = 0, length = 0;
  {
    const std::lock_guard lock(mutex_);
    now = clock_.now_ns();
    advance(now);
    length = reading_.queue_length += items;
  }
  show(length, now);
  // After its own lock: no thread ever holds the locks of two meters.
  if (within_ != nullptr) within_->arrive(items);
  return now;
}

Service Meter::begin() noexcept {
  if (!measures_) return {clock_.now_ns(), std::nullopt};
  const auto begun = clock_.core_time();
  // The outer meter begins first and ends last, so its busy time covers that of its parts.
  if (within_ != nullptr) within_->enter();
  return {enter(), begun};
}

std::int64_t Meter::enter() noexcept {
  std::int64_t now = 0, length = 0;
  {
    const std::lock_guard lock(mutex_);
    now = clock_.now_ns();
    advance(now);
    length = --reading_.queue_length;
    ++in_service_;
  }
  show(length, now);
  return now;
}

std::int64_t Meter::end(const Service& service, bool failed, int group) noexcept {
  if (!measures_) return clock_.now_ns();
  const auto now = service.begun ? clock_.core_time() : std::nullopt;
  const auto used = now ? std::optional(*now - *service.begun) : std::nullopt;
  const auto ended_ns = leave_service(service.begun_ns, used, failed, group);
  if (within_ != nullptr) within_->leave_service(service.begun_ns, used, failed, group);
  return ended_ns;
}

std::int64_t Meter::leave_service(std::int64_t begun_ns, const std::optional<CoreTime>& used, bool failed,
                                  int group) noexcept {
  const std::lock_guard lock(mutex_);
  const auto now = clock_.now_ns();
  advance(now);
  --in_service_;
  ++reading_.items;
  if (failed) ++reading_.failed;
  const auto took_ns = now - begun_ns;
  reading_.latency.add(took_ns);
  if (!reading_.groups.empty()) {
    GroupReading& mine = reading_.groups[static_cast<std::size_t>(group)];
    ++mine.items;
    if (failed) ++mine.failed;
    mine.busy_ns += took_ns;
  }
  if (!used) {
    sample({begun_ns, took_ns});
    return now;
  }
  // The clocks of the kernel are read at slightly different moments, so their parts can exceed the whole.
  const auto on_core_ns = std::clamp<std::int64_t>(used->on_core_ns, 0, took_ns);
  const auto waiting_ns = std::clamp<std::int64_t>(used->waiting_ns, 0, took_ns - on_core_ns);
  // While a member of its team waits for a core, the thread itself is asleep at the end of a parallel loop.
  // Its sleep is not longer for members that wait at the same time. So the sum of their waits is an upper bound.
  const auto asleep_ns = took_ns - on_core_ns - waiting_ns;
  const auto no_core_ns = waiting_ns + std::clamp<std::int64_t>(used->team_waiting_ns, 0, asleep_ns);
  const auto core_ns = on_core_ns + std::max<std::int64_t>(used->team_on_core_ns, 0);
  reading_.measured_ns += took_ns;
  reading_.on_core_ns += on_core_ns;
  reading_.no_core_ns += no_core_ns;
  reading_.core_ns += core_ns;
  sample({begun_ns, took_ns, true, no_core_ns, core_ns});
  return now;
}

// Reservoir sampling (Vitter's algorithm R): after n services, each is among the samples with probability max / n.
void Meter::sample(const ServiceSample& service) noexcept {
  if (reading_.samples.size() < max_samples) return reading_.samples.push_back(service);
  const auto at = std::uniform_int_distribution<std::int64_t>(0, reading_.items - 1)(random_);
  if (at < static_cast<std::int64_t>(max_samples)) reading_.samples[static_cast<std::size_t>(at)] = service;
}

Reading Meter::read() const {
  const std::lock_guard lock(mutex_);
  if (!measures_) return reading_;
  // Adds the time since the last event. Otherwise a stage inside one long call would look idle.
  Reading now = reading_;
  integrate(now, clock_.now_ns() - since_ns_);
  return now;
}

Statistics::Statistics(const GraphOptions& options, const std::vector<std::string>& frame_names,
                       const std::vector<std::string>& lane_names, const std::vector<std::string>& batch_names,
                       const Clock& clock, const Trace* trace)
    : input("input", 1, clock),
      without_credits("gate", 1, clock),
      read("read", options.read_threads, clock),
      bytes("bytes", 0, clock),
      workers("workers", options.workers, clock, unit_of(frame_names.size(), batch_names.size())),
      batch("batch", 0, clock),
      lane("lane", options.lanes, clock, Unit::batches),
      commit("commit", 1, clock, Unit::batches),
      timeline(lane_names.size()),
      clock_(clock),
      cores_(available_cores()),
      admission_items_(options.admission_items) {
  for (const auto& name : frame_names) frame_stages.emplace_back(name, options.workers, clock, Unit::frames, &workers);
  // Not within `lane`: StageRunner::lane() counts a batch there once, for all stages together.
  for (const auto& name : lane_names) lane_stages.emplace_back(name, options.lanes, clock, Unit::batches);
  for (const auto& name : batch_names) batch_stages.emplace_back(name, options.workers, clock, Unit::batches, &workers);
  for (auto* meter : {&read, &commit}) meter->tell_groups_apart(options.groups);
  for (auto* stages : {&frame_stages, &lane_stages, &batch_stages}) {
    for (auto& meter : *stages) meter.tell_groups_apart(options.groups);
  }
  for (auto* meter : {&read, &bytes, &batch, &lane, &commit}) meter->show_queue(trace);
  for (auto& meter : frame_stages) meter.show_queue(trace);
  for (auto& meter : batch_stages) meter.show_queue(trace);
}

std::vector<ResourceReading> Statistics::resources() const {
  std::vector<ResourceReading> all{{read.read(), {}}};
  if (!frame_stages.empty() || !batch_stages.empty()) {
    all.push_back({workers.read(), read_all(frame_stages, batch_stages)});
  }
  // `true`: a batch goes through the lane stages in turn, on one lane.
  if (!lane_stages.empty()) all.push_back({lane.read(), read_all(lane_stages), true});
  all.push_back({commit.read(), {}});
  return all;
}

Snapshot Statistics::snapshot() const {
  Snapshot now;
  // The meters are read one after another while the graph runs, so their moments differ by microseconds.
  now.time_ns = clock_.now_ns();
  now.measured = clock_.measures();
  now.input = input.read();
  now.without_credits = without_credits.read();
  now.bytes = bytes.read();
  now.batch = batch.read();
  if (now.measured) now.resources = resources();
  now.cpu_ns = process_cpu_ns();
  now.machine = clock_.machine_time();
  now.cores = cores_;
  now.admission_items = admission_items_;
  const std::lock_guard lock(mutex_);
  now.planned = planned_;
  now.committed = committed_;
  now.in_flight = planned_ - left_;
  now.moments = moments_;
  now.latency = latency_;
  return now;
}

std::int64_t Statistics::count_planned() noexcept {
  const std::lock_guard lock(mutex_);
  ++planned_;
  const std::int64_t now_ns = clock_.now_ns();
  moments_.last_admitted_ns = now_ns;
  if (!moments_.first_admitted_ns) moments_.first_admitted_ns = now_ns;
  moments_.committed_at_last_admission = committed_;
  return now_ns;
}

std::int64_t Statistics::count_committed(std::span<const std::int64_t> admitted_ns) noexcept {
  const std::lock_guard lock(mutex_);
  const auto frames = static_cast<std::int64_t>(admitted_ns.size());
  const std::int64_t now_ns = clock_.now_ns();
  for (const std::int64_t admitted : admitted_ns) latency_.add(now_ns - admitted);
  committed_ += frames;
  if (!moments_.first_committed_ns) {
    moments_.first_committed_ns = now_ns;
    moments_.first_committed = frames;
  }
  return committed_;
}

void Statistics::count_left(std::int64_t frames) noexcept {
  const std::lock_guard lock(mutex_);
  left_ += frames;
}

std::vector<const Meter*> Statistics::meters_of_frames() const {
  std::vector<const Meter*> all{&read, &bytes};
  for (const auto& meter : frame_stages) all.push_back(&meter);
  all.push_back(&batch);
  all.push_back(&lane);
  for (const auto& meter : lane_stages) all.push_back(&meter);
  for (const auto& meter : batch_stages) all.push_back(&meter);
  all.push_back(&commit);
  return all;
}

}  // namespace millrace
