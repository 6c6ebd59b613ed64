#include "apps/estimate.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stop_token>
#include <utility>

#include "apps/page/report_page.hpp"
#include "apps/progress.hpp"
#include "apps/signals.hpp"
#include "apps/temporary_folder.hpp"
#include "apps/terminal.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "io/files/source_names.hpp"
#include "io/results/plan.hpp"
#include "models/engines/threads.hpp"
#include "pipeline/ticker.hpp"
#include "run/host_memory.hpp"
#include "run/job.hpp"
#include "stages/encode.hpp"
#include "stages/sinks/sink.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using WallClock = std::chrono::steady_clock;

// Statistics of fewer pictures say little about others.
constexpr std::int64_t usual_sample = 64;
// The pipeline must work at its own rate for longer than it fills and drains.
constexpr std::int64_t fillings = 4;
// In a shorter run, single waits for a disk or a core decide the rate. A longer one makes the user wait.
constexpr double short_s = 4, long_s = 8;
constexpr std::int64_t largest_sample = 8192;  // the user's patience also ends at its files
constexpr int most_blocks = 8;                 // enough for a deviation, and each is long compared with a batch

double seconds_since(WallClock::time_point begin) {
  return std::chrono::duration<double>(WallClock::now() - begin).count();
}

DiskSpace free_space(const std::string& folder) {
  struct statvfs system {};
  if (::statvfs(folder.c_str(), &system) != 0) throw StorageError("look at the file system of", folder, errno);
  DiskSpace space{static_cast<double>(system.f_bavail) * static_cast<double>(system.f_frsize), {}};
  // Some file systems make inodes as they need them, and report none.
  if (system.f_files > 0) space.inodes = static_cast<double>(system.f_favail);
  return space;
}

/// Watches a run over a sample.
class SampleListener final : public JobListener {
 public:
  SampleListener(bool quiet, StopSignals* signals) : quiet_(quiet), signals_(signals) {}

  // Most warnings are about pictures that failed, which the estimate counts, and about files of the temporary folder.
  void warn(const std::string& /*text*/) override {}
  void planned(const MemoryPlan& /*plan*/) override {}
  void on_stop(std::function<void()> stop) override {
    if (signals_ != nullptr) signals_->on_stop([stop = std::move(stop)](int /*signal*/) { stop(); });
  }
  void began(std::function<ProgressSample()> sample) override {
    progress_ = std::make_unique<Progress>(progress_style(quiet_), sample);
    // More often than blocks of pictures end, even if they are short.
    ticker_ = std::make_unique<Ticker>("estimate", std::chrono::milliseconds(20), [this, sample = std::move(sample)] {
      const Snapshot now = sample().snapshot;
      if (now.committed > 0)
        moments_.push_back({static_cast<double>(now.time_ns) / 1e9, now.planned, now.committed,
                            static_cast<double>(resident_memory().value_or(0))});
    });
  }
  void ended() noexcept override {
    progress_.reset();
    ticker_.reset();
    if (signals_ != nullptr) signals_->on_stop({});
    ended_ = WallClock::now();
  }

  WallClock::time_point end() const { return ended_; }

  /// The times of equal blocks of pictures between filling and draining, into `times`.
  void fill_blocks(SampleTimes& times) const {
    if (moments_.size() < 2) return;
    const auto admitted = moments_.back().admitted;
    auto last = std::ranges::find(moments_, admitted, &Moment::admitted);
    // A sample that only fills and drains has no other blocks.
    if (last - moments_.begin() < 2 || last->committed - moments_.front().committed < 4) last = moments_.end() - 1;
    const double first = static_cast<double>(moments_.front().committed);
    const double all = static_cast<double>(last->committed) - first;
    const int blocks = std::min(most_blocks, static_cast<int>(all / 2));
    if (blocks < 2) return;
    times.block = all / blocks;
    double before = moments_.front().at_s;
    for (int i = 1; i <= blocks; ++i) {
      const double at = time_of(first + times.block * i);
      times.block_s.add(at - before);
      before = at;
    }
  }

  /// The memory of the process, without its peak.
  SampleMemory memory(std::int64_t pictures) const {
    SampleMemory memory{.pictures = pictures};
    for (const Moment& moment : moments_) {
      if (moment.committed * 2 >= pictures) memory.resident_bytes.add(moment.resident_bytes);
      if (moment.committed * SampleMemory::early <= pictures)
        memory.early_peak_bytes = std::max(memory.early_peak_bytes, moment.resident_bytes);
    }
    return memory;
  }

 private:
  struct Moment {
    double at_s;
    std::int64_t admitted, committed;
    double resident_bytes;
  };

  /// When `committed` pictures were committed, between two moments if necessary.
  double time_of(double committed) const {
    const auto after = std::ranges::find_if(
        moments_, [&](const Moment& moment) { return static_cast<double>(moment.committed) >= committed - 1e-9; });
    if (after == moments_.begin()) return after->at_s;
    const Moment& before = *(after - 1);
    const auto gained = static_cast<double>(after->committed - before.committed);
    const double share = (committed - static_cast<double>(before.committed)) / gained;
    return before.at_s + share * (after->at_s - before.at_s);
  }

  const bool quiet_;
  StopSignals* const signals_;
  std::vector<Moment> moments_;  // of one thread, and read after its end
  WallClock::time_point ended_{};
  std::unique_ptr<Progress> progress_;
  std::unique_ptr<Ticker> ticker_;
};

bool ends_with_whole_output(const Config& config) {
  const auto finishes = [](const Chain& chain) {
    return std::ranges::any_of(chain.options<Encode>().sinks(),
                               [](const SinkEntry* sink) { return sink->finish != nullptr; });
  };
  return !config.output.reduce.empty() || finishes(config.chain) ||
         std::ranges::any_of(config.of_views, [&](const auto& view) { return finishes(view.second); });
}

/// Fills in all times of the window, and the blocks if the listener found none.
void fill_window(SampleTimes& times, const RunReport& report) {
  const auto seconds = [](const std::optional<std::int64_t>& ns) {
    return ns ? std::optional(static_cast<double>(*ns) / 1e9) : std::nullopt;
  };
  const Snapshot& window = report.window;
  const Phases phases = phases_of(window);
  times.pictures = window.committed;
  times.window_s = static_cast<double>(window.time_ns) / 1e9;
  times.fill_s = seconds(phases.fill_ns);
  times.drain_s = seconds(phases.drain_ns);
  times.steady_pictures_per_s = phases.steady_rate;
  times.outside = window.committed - (window.moments.committed_at_last_admission - window.moments.first_committed);
  const Reading* busiest = nullptr;
  for (const ResourceReading& resource : window.resources) {
    const Reading& total = resource.total;
    if (busiest == nullptr || total.utilisation(window.time_ns) > busiest->utilisation(window.time_ns))
      busiest = &total;
  }
  if (busiest == nullptr || busiest->busy_ns <= 0 || busiest->items <= 0) return;
  times.most_per_s = static_cast<double>(window.committed) / times.window_s / busiest->utilisation(window.time_ns);
  const double own = static_cast<double>(window.cpu_ns) / static_cast<double>(window.time_ns);
  const double others = other_cores(window).value_or(0);
  // Its threads waited for cores that other programs and other threads of the run had.
  if (own + others > 0) {
    const double waited = std::min(busiest->no_core().value_or(0) * others / (own + others), 0.9);
    times.gain_without_others = waited / (1 - waited);
  }
  if (times.block_s.count() > 1) return;
  // A sample too quick to be watched: its busiest threads have measured each of their items.
  times.block_s = {};
  times.block = static_cast<double>(window.committed) / static_cast<double>(busiest->items);
  for (const auto& [highest_ns, items] : busiest->latency.filled()) {
    for (std::uint64_t i = 0; i < items && highest_ns; ++i) times.block_s.add(static_cast<double>(*highest_ns) / 1e9);
  }
}

/// Runs the samples of one estimate.
class Sampler {
 public:
  struct Request {
    const RunArguments& arguments;
    const Config& config;
    const CheckedRun& checked;
    const EngineFactory& factory;
    StopSignals* signals;
  };
  Sampler(const Request& request, const std::string& output) : request_(request), output_(output) {}

  /// `start_s` passed before this call, without the scan.
  SampleRun run(const SamplePlan& plan, double start_s) {
    const auto begin = WallClock::now();
    const TemporaryFolder folder(existing_folder(output_), "estimate");
    Config config = request_.config;
    config.output.folder = folder.path();
    // These files belong to the real run.
    config.trace = {};
    config.events = {};
    config.serve = {};
    config.measure.enabled = true;
    // The team of a plan is in the real output only.
    if (const auto team = planned_team(output_)) config.threads.team = *team;
    SourceSpec spec = request_.checked.spec;
    if (fs::exists(output_)) spec = without_output(std::move(spec), output_);
    spec.selection.every *= plan.every;
    spec.selection.limit = plan.pictures;
    SampleListener listener(request_.arguments.quiet, request_.signals);
    SampleRun sample;
    sample.every = plan.every;
    sample.report = run_job(
        {config, request_.arguments.devices, std::move(spec), request_.checked.packages, request_.checked.notes, false},
        request_.factory, listener);
    if (sample.report.state == "stopped") return sample;
    (void)write_page(to_json(sample.report), folder.path(), folder.path() + "/runs/" + sample.report.run, "");
    sample.wall_s = seconds_since(begin);
    SampleTimes& times = sample.times;
    listener.fill_blocks(times);
    fill_window(times, sample.report);
    const double until_end = std::chrono::duration<double>(listener.end() - begin).count();
    times.start_s = start_s + std::max(until_end - times.window_s, 0.0);
    times.end_s = sample.wall_s - until_end;
    times.end_grows = ends_with_whole_output(config);
    sample.files = read_sample(folder.path());
    sample.memory = listener.memory(times.pictures);
    sample.memory.peak_bytes = static_cast<double>(peak_memory().value_or(0));  // 0: not known
    return sample;
  }

 private:
  const Request request_;
  const std::string& output_;
};

/// A sample long enough to show the rate, if the user named no number.
SampleRun take_sample(Sampler& sampler, const EstimateArguments& own, std::int64_t pictures, std::int64_t usual,
                      double start_s) {
  SampleRun first = sampler.run(plan_sample(pictures, own.pictures.value_or(usual)), start_s);
  const double window_s = first.times.window_s;
  if (own.pictures || first.report.state == "stopped" || window_s <= 0 || window_s >= short_s) return first;
  const double enough = static_cast<double>(first.times.pictures) * long_s / window_s;
  const SamplePlan longer = plan_sample(pictures, static_cast<std::int64_t>(std::min(enough, 1.0 * largest_sample)));
  if (longer.pictures < 2 * first.times.pictures) return first;
  release_freed_memory();  // otherwise the memory of the first sample would count as that of the second
  SampleRun second = sampler.run(longer, start_s);
  // The program loads its libraries once.
  second.times.start_s = std::max(first.times.start_s, second.times.start_s);
  return second;
}

EstimateScope scope_of(const DryRun& input, const std::optional<OutputState>& state, bool add_new) {
  const auto segments_of = [](std::int64_t items) { return (items + items_of_segment - 1) / items_of_segment; };
  EstimateScope scope;
  scope.to_plan = input.items;
  if (state) {
    scope.done = state->done();
    scope.segments = static_cast<std::int64_t>(state->segments) - state->contents.done_segments;
    scope.to_plan = state->end && !add_new ? 0 : std::max<std::int64_t>(input.items - state->planned, 0);
    scope.pictures = state->left();
  }
  scope.pictures += scope.to_plan;
  scope.plan_segments = segments_of(scope.to_plan);
  scope.segments += scope.plan_segments;
  return scope;
}

ExitCode show(const EstimateFacts& facts, bool json) {
  const nlohmann::json estimate = estimate_json(facts);
  // Names may be invalid UTF-8.
  const std::string text =
      json ? estimate.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n" : estimate_text(estimate);
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
  if (estimate.at("fits") != false) return ExitCode::ok;
  // The upper bound, if there is one.
  const auto needed = [&](const char* figure) {
    const nlohmann::json& it = estimate.at(figure);
    return it.at(it.at("high").is_null() ? "value" : "high").get<double>();
  };
  std::string need = "not even its sample does";
  if (facts.sample) {
    need = "it may need " + readable_bytes(needed("disk_bytes")) + " and " +
           count_of(std::llround(needed("inodes")), "file");
  }
  say("the run does not fit on the disk of '" + display_name(facts.output) + "': " + need + ", and " +
      readable_bytes(facts.free.bytes) +
      (facts.free.inodes ? " and " + count_of(std::llround(*facts.free.inodes), "file") : std::string()) +
      " are free. Free space there, choose another --output, or name fewer formats");
  return ExitCode::storage;
}

}  // namespace

SamplePlan plan_sample(std::int64_t pictures, std::int64_t wanted) {
  if (pictures <= wanted) return {1, pictures};
  const auto is_prime = [](std::int64_t number) {
    for (std::int64_t divisor = 2; divisor * divisor <= number; ++divisor) {
      if (number % divisor == 0) return false;
    }
    return true;
  };
  std::int64_t every = (pictures + wanted - 1) / wanted;
  while (!is_prime(every)) ++every;
  return {every, (pictures + every - 1) / every};
}

ExitCode estimate(const EstimateArguments& own, const RunArguments& arguments, const Config& config,
                  const EngineFactory& factory, const VariantOpener& open_variant, StopSignals* signals) {
  const auto begin = WallClock::now();
  if (arguments.dry_run) throw UsageError("`millrace estimate` takes no --dry-run: it runs a sample of the input");
  const CheckedRun checked = check_run(arguments, config, open_variant);
  if (std::ranges::find(checked.spec.inputs, "-") != checked.spec.inputs.end()) {
    throw UsageError(
        "`millrace estimate` reads the input more than once, so it cannot read names from stdin: write "
        "them to a list (.txt) and name it with --input");
  }
  const std::string output = output_path(config);
  EstimateFacts facts;
  facts.output = config.output.folder;
  SourceSpec spec = checked.spec;
  if (fs::exists(output)) {
    facts.state = check_output(arguments, config, spec, checked.packages, output);
    spec = without_output(std::move(spec), output);
  }
  const double start_s = seconds_since(begin);
  std::stop_source stop;
  if (signals != nullptr) signals->on_stop([&stop](int /*signal*/) { stop.request_stop(); });
  try {
    facts.input = dry_run(spec, 0, {}, stop.get_token());
  } catch (...) {
    if (signals != nullptr) signals->on_stop({});  // it would refer to `stop`
    throw;
  }
  if (signals != nullptr) signals->on_stop({});
  const auto stopped = [&] {
    say("stopped before the estimate was complete; the temporary folder is removed");
    return signals != nullptr && signals->received() == SIGTERM ? ExitCode::terminated : ExitCode::interrupted;
  };
  if (stop.stop_requested()) return stopped();
  if (facts.input.items == 0 && !facts.state) throw InputError(facts.input.nothing_found);
  facts.scope = scope_of(facts.input, facts.state, arguments.add_new);
  const std::string folder = existing_folder(output);
  facts.free = free_space(folder);
  facts.notes = checked.notes;
  if (auto text = unreadable_folders(facts.input.counts, ""); !text.empty()) facts.notes.push_back(std::move(text));
  if (facts.scope.pictures > 0 && facts.input.items > 0) {
    Sampler sampler({arguments, config, checked, factory, signals}, output);
    const auto usual = std::max(
        usual_sample,
        fillings * static_cast<std::int64_t>(resolve_for(config, output, arguments.devices).graph.admission_items));
    try {
      facts.sample = take_sample(sampler, own, facts.input.items, usual, start_s);
    } catch (const StorageError& error) {
      if (error.error_number() != ENOSPC && error.error_number() != EDQUOT) throw;
      facts.sample_fits = false;
    }
    if (facts.sample && facts.sample->report.state == "stopped") return stopped();
  }
  if (facts.sample) facts.scope.objects = facts.sample->report.counts.objects;
  // As before a run, also with --quiet.
  for (const auto& note : facts.notes) say(note);
  return show(facts, own.json);
}

}  // namespace millrace
