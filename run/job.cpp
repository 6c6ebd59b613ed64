#include "run/job.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "base/cpu.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "io/files/lock.hpp"
#include "io/files/source_names.hpp"
#include "io/reducers/reducer.hpp"
#include "io/results/plan.hpp"
#include "io/results/run_folder.hpp"
#include "io/results/segments.hpp"
#include "models/variant.hpp"
#include "pipeline/cores.hpp"
#include "pipeline/system_clock.hpp"
#include "run/committer.hpp"
#include "run/execution.hpp"
#include "run/feed.hpp"
#include "run/host_memory.hpp"
#include "run/message_of.hpp"
#include "run/predictions.hpp"
#include "run/reader.hpp"
#include "run/report_verdict.hpp"
#include "run/resource_log.hpp"
#include "run/timeline.hpp"
#include "run/trace_file.hpp"
#include "stages/decode.hpp"
#include "stages/encode.hpp"
#include "stages/pixel_cache.hpp"
#include "stages/sinks/sink.hpp"

namespace millrace {
namespace {

std::string utc_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string few_lanes(const ResolvedConfig& resolved, const ResolvedConfig& usual) {
  return "memory may be enough for " + count_of(resolved.graph.lanes, "lane") + " instead of " +
         std::to_string(usual.graph.lanes) + ", so teams have " + count_of(resolved.team, "thread") +
         "; threads.lanes sets another number";
}

/// Tells the listener that the run has ended, also after an exception.
class EndNotifier {
 public:
  explicit EndNotifier(JobListener& listener) : listener_(listener) {}
  EndNotifier(const EndNotifier&) = delete;
  EndNotifier& operator=(const EndNotifier&) = delete;
  ~EndNotifier() { listener_.ended(); }

 private:
  JobListener& listener_;
};

/// Keeps the learned limits of model calls for later runs, also after an exception.
class KeepsLimits {
 public:
  explicit KeepsLimits(const Execution& execution) : execution_(execution) {}
  KeepsLimits(const KeepsLimits&) = delete;
  KeepsLimits& operator=(const KeepsLimits&) = delete;
  ~KeepsLimits() {
    try {
      execution_.remember_limits();
    } catch (const std::exception&) {  // harmless: a later run repeats some calls that fail
    }
  }

 private:
  const Execution& execution_;
};

void fill_counters(RunReport& report, const Counters& counters) {
  if (const auto redone = counters[redone_batches].count(); redone > 0) {
    report.notes.push_back("memory ran out for the data of whole batches, and Millrace retried in halves " +
                           std::to_string(redone) + " times; a smaller batch.size is faster");
  }
  for (auto& note : counters.notes()) report.notes.push_back(std::move(note));
  report.calls = counters.counts();
}

void fill_device_counts(RunReport& report, const DeviceCounts& device) {
  report.calls.insert(report.calls.end(), {{"uploads", device.uploads},
                                           {"downloads", device.downloads},
                                           {"waits", device.waits},
                                           {"overflows", device.overflows}});
}

void fill_device_calls(RunReport& report, const JobRequest& request, const Execution& execution) {
  // On the host, nothing is copied and nobody waits.
  if (request.devices.kind == Devices::Kind::cpu) return;
  const Counters& counters = execution.counters();
  report.device_calls = device_calls(request.config.chain, report.window, counters, execution.device_counts(),
                                     execution.device_counts_by_stage());
  // Batches that were retried in halves made more calls, and have a note of their own.
  if (!report.device_calls || counters[redone_batches].count() > 0) return;
  if (std::string note = excess_of(*report.device_calls); !note.empty()) report.notes.push_back(std::move(note));
}

std::unique_ptr<const Clock> make_clock(const Config& config) {
  if (!config.measure.enabled) return std::make_unique<UnmeasuredClock>();
  return std::make_unique<SystemClock>();
}

// A failed picture has a line too, so a finished run has one for each planned item.
void check_accounts(const RunReport& report) {
  if (report.state != "finished" || report.planned == report.counts.items) return;
  throw RunError("results",
                 std::to_string(report.planned) + " items are planned, but " + std::to_string(report.counts.items) +
                     " are accounted for. This is a bug in Millrace, so please report it; committed results are valid");
}

/// The parts of one attempt.
struct Attempt {
  const JobRequest& request;
  const ResolvedConfig& resolved;
  const std::string& output;
  const std::vector<const SinkEntry*> sinks;
  const FolderLock& lock;
  RunFolder& folder;
  const Clock& clock;
  Execution& execution;
  Plan& plan;
  SegmentStore& store;
  Feed& feed;
  Reader& reader;
  Committer& committer;
  JobListener& listener;
  const TraceRecorder* recorder;  ///< null: no trace
  const std::int64_t begun_ns;    ///< of the attempt
  std::int64_t log_begun_ns = 0;  ///< the time that resources.csv calls 0
};

/// `window` is that of the attempt, or its part up to now. All functions that this calls may be called from any thread.
void fill_accounts(RunReport& report, const Attempt& attempt, const Snapshot& window) {
  const PlanTotals totals = attempt.plan.totals();
  const Counters& counters = attempt.execution.counters();
  report.planned = totals.items;
  report.plan_complete = totals.complete;
  report.counts = attempt.store.totals();
  report.failed_now = attempt.committer.failed();
  report.views = attempt.committer.views();
  report.scan = attempt.plan.counts();
  report.models = attempt.execution.models();
  report.load_ns = report.models.load_ns();
  // Packages that were evicted load again during the run, so load_ns can exceed the warm-up.
  report.warm_up_ns = std::max<std::int64_t>(0, attempt.execution.warm_up_ns() - report.load_ns);
  report.start = attempt.execution.start_times();
  report.memory = attempt.execution.memory_plans();
  report.window = window;
  report.read_bytes = attempt.reader.read_bytes() + counters.bytes_read_again;
  report.written_bytes = attempt.committer.written_bytes() + counters.side_file_bytes;
  report.stage_bytes = {{"read", attempt.reader.read_bytes()},
                        {Decode::name, counters.decoded_bytes.load()},
                        {Encode::name, counters.side_file_bytes.load()},
                        {"commit", attempt.committer.written_bytes()}};
  report.stage_bytes.merge(attempt.execution.copied_bytes());
  report.notes = attempt.request.notes;
  if (attempt.lock.note()) report.notes.push_back(*attempt.lock.note());
  for (const auto& note : attempt.store.notes()) report.notes.push_back(note);
  fill_counters(report, counters);
}

void fill_all_accounts(RunReport& report, const Attempt& attempt) {
  fill_accounts(report, attempt, attempt.execution.window());
  fill_device_counts(report, attempt.execution.device_counts());
  for (const auto& [name, count] : attempt.execution.graph_counts()) report.calls.emplace_back(name, count);
  for (auto& note : attempt.execution.graph_notes()) report.notes.push_back(std::move(note));
}

/// The report of the attempt up to now; `begun` has the facts that are known from the start.
RunReport report_so_far(RunReport begun, const Attempt& attempt) {
  const Execution& execution = attempt.execution;
  RunReport report = std::move(begun);
  report.state = "running";
  const bool ready = execution.ready();  // before the snapshot, which must not be older than the begin of the window
  const Snapshot now = execution.snapshot_with_gpus();
  const Snapshot window_begun = ready ? execution.window_begun() : now;
  fill_accounts(report, attempt, now - window_begun);
  fill_verdict(report, window_begun, now);
  return report;
}

/// The content of timeline.json for this part of the run; empty without batches.
std::string timeline_json(const Attempt& attempt, const LaneTimeline::Kept& kept, std::int64_t begun_ns,
                          std::int64_t ended_ns) {
  if (kept.entries.empty()) return "";
  TimelineFacts facts{attempt.execution.lanes(), {}, {}, attempt.log_begun_ns};
  for (const ChainLink* stage : attempt.request.config.chain.of(Section::lane))
    facts.stages.push_back(stage->info.name);
  for (const ViewCounts& view : attempt.committer.views()) facts.views.push_back(view.name);
  facts.begun_ns = begun_ns;
  facts.ended_ns = ended_ns;
  return to_json(kept, facts);
}

/// The same for the newest batches, up to now, from the end of the last batch that it leaves out.
std::string newest_batches(const Attempt& attempt) {
  constexpr std::size_t shown = 128;
  const Execution& execution = attempt.execution;
  if (!execution.ready()) return "";
  const LaneTimeline::Kept all = execution.timeline(), newest = all.newest(shown);
  const bool whole = newest.entries.size() == all.entries.size();
  const std::int64_t begun_ns = whole ? execution.window_begun().time_ns : newest.cut_ended_ns;
  return timeline_json(attempt, newest, begun_ns, execution.snapshot().time_ns);
}

ExecutionEnds ends_of(Attempt& attempt) {
  return {.input_root = attempt.plan.root(),
          // Only after the scan has ended: during a scan, the models load while the run waits for its first frame.
          .idle = attempt.plan.totals().complete && attempt.feed.at_end(),
          .next = [&] { return attempt.feed.next(); },
          .stop_next = [&] { attempt.plan.stop(); },
          .file_bytes = [&](const Frame& frame) { return attempt.reader.file_bytes(frame); },
          .read = [&](Frame& frame) { attempt.reader.read(frame); },
          .commit = [&](const Batch& batch,
                        std::vector<std::string> lines) { attempt.committer.commit(batch, std::move(lines)); }};
}

Result execute(Attempt& attempt, RunReport& report) {
  Execution& execution = attempt.execution;
  const EndNotifier notifier(attempt.listener);
  // Before prepare(): on a GPU it loads and calls the models, and a stop during that time must count.
  attempt.listener.on_stop([&execution] { execution.request_stop(); });
  execution.prepare(ends_of(attempt));
  for (const auto& memory : execution.memory_plans()) attempt.listener.planned(memory);
  // After prepare(): before it there is no graph to take snapshots of.
  attempt.listener.began([&attempt, &execution] {
    const Counts counts = attempt.store.totals();
    const PlanTotals totals = attempt.plan.totals();
    return ProgressSample{execution.snapshot(),
                          counts.items,
                          counts.failed_items(),
                          totals.items,
                          totals.complete,
                          execution.ready(),
                          execution.counters().windows.now()};
  });
  attempt.listener.reports([&attempt, begun = report] { return report_so_far(begun, attempt); },
                           [&attempt] { return newest_batches(attempt); });
  std::optional<ResourceLog> resources;
  if (attempt.clock.measures())
    resources.emplace(attempt.folder.path() + "/resources.csv", attempt.request.devices.buses,
                      [&execution] { return execution.snapshot(); });
  if (resources) attempt.log_begun_ns = resources->begun_ns();
  Result result = execution.run();
  if (resources) report.gpus = resources->finish();
  // The store syncs journals every few seconds. After a stop, the last batches may not be durable yet.
  attempt.store.sync();
  return result;
}

// The sinks of all views, each once.
std::vector<const SinkEntry*> sinks_of(const std::vector<PlannedView>& views) {
  std::vector<const SinkEntry*> all;
  for (const PlannedView& view : views) {
    for (const SinkEntry* sink : view.chain->options<Encode>().sinks()) {
      if (std::ranges::find(all, sink) == all.end()) all.push_back(sink);
    }
  }
  return all;
}

/// A timeline that cannot be written must not fail the run: its results are complete.
void save_timeline(const RunReport& report, const Attempt& attempt) {
  if (!report.window.measured) return;  // nothing was measured, or the graph was never made
  try {
    const std::int64_t begun_ns = attempt.execution.window_begun().time_ns;
    const std::string timeline =
        timeline_json(attempt, attempt.execution.timeline(), begun_ns, begun_ns + report.window.time_ns);
    if (!timeline.empty()) attempt.folder.write_timeline(timeline);
  } catch (const std::exception& error) {
    attempt.listener.warn("the timeline of the lanes was not written: " + std::string(error.what()) +
                          "; results and report are not affected");
  }
}

/// A trace that cannot be written must not fail the run: its results are complete.
/// Returns whether `report` has changed.
bool save_trace(RunReport& report, const Attempt& attempt) {
  if (attempt.recorder == nullptr) return false;
  const std::int64_t run_begun_ns = attempt.execution.window_begun().time_ns;
  const TraceFacts facts{report.run,       report.started, tool,
                         attempt.begun_ns, run_begun_ns,   run_begun_ns + report.window.time_ns};
  try {
    report.notes.push_back(write_trace(attempt.request.config.trace.file, *attempt.recorder, facts));
  } catch (const StorageError& error) {
    attempt.listener.warn("the trace was not written: '" + display_name(error.path()) + "', " +
                          std::system_category().message(error.error_number()) +
                          "; results and report are not affected");
    return false;
  } catch (const std::exception& error) {
    attempt.listener.warn("the trace was not written: " + message_of(error));
    return false;
  }
  return true;
}

/// Runs the attempt and writes its report, also after an exception.
void execute_and_report(Attempt& attempt, RunReport& report) {
  const auto write = [&] {
    // After the sinks have finished, because the list contains only files that exist.
    report.side_outputs = sink_outputs(attempt.output);
    attempt.folder.write_report(to_json(report).dump(2));
  };
  try {
    const KeepsLimits keep(attempt.execution);
    const Result result = execute(attempt, report);
    report.state = result.stopped ? "stopped" : "finished";
    fill_all_accounts(report, attempt);
    fill_verdict(report, attempt.execution.window_begun(), attempt.execution.finished());
    predict_changes(report, attempt.folder, attempt.resolved, attempt.request, attempt.execution.call_costs());
    // Once more, because only now the gains are predicted.
    if (!report.what_if.empty()) fill_verdict(report, attempt.execution.window_begun(), attempt.execution.finished());
    fill_device_calls(report, attempt.request, attempt.execution);
    check_accounts(report);
    if (report.state == "finished") {
      // Every picture has its line. A kill between a line and the removal of its file may have left files.
      std::error_code kept;
      std::filesystem::remove_all(attempt.output + "/unfinished", kept);
      // These files cover the whole output, so a stopped run does not make them.
      for (const SinkEntry* sink : attempt.sinks) {
        if (sink->finish != nullptr) sink->finish(attempt.output);
      }
      for (const auto& name : attempt.request.config.output.reduce) {
        try {
          report.reduced.push_back(run_reducer(*find_reducer(name), attempt.output));
        } catch (const std::exception& error) {  // a summary that fails must not fail the run: its results are complete
          report.notes.push_back("reduced/" + name + " was not made: " + error.what() +
                                 "; to retry, run `millrace reduce " + name + " " + attempt.output + "`");
        }
      }
    }
  } catch (const std::exception& error) {
    report.state = "failed";
    report.error = message_of(error);
    fill_all_accounts(report, attempt);
    const auto write_or_warn = [&] {
      try {
        write();
      } catch (const StorageError& unwritten) {
        attempt.listener.warn(unwritten.what());  // the run throws the first error
      }
    };
    write_or_warn();
    save_timeline(report, attempt);
    if (save_trace(report, attempt)) write_or_warn();
    throw;
  }
  // The report comes first. A trace can be large, and a stop ends the program after a while.
  write();
  save_timeline(report, attempt);
  if (save_trace(report, attempt)) write();
}

}  // namespace

std::string unreadable_folders(const ScanCounts& counts, const std::string& remedy) {
  const Tally& folders = counts[Skip::unreadable_folder];
  if (folders.count == 0) return {};
  return count_of(folders.count, "folder") + " could not be listed (" + names_of(folders) +
         "), so their pictures are not in the plan: fix the permissions" + remedy;
}

int most_lanes(const Config& config, const Packages& packages, const Devices& devices) {
  const auto available = available_memory();
  if (config.threads.lanes > 0 || devices.kind != Devices::Kind::cpu || !available)
    return std::numeric_limits<int>::max();
  std::int64_t all = 0, largest = 0;
  for (const auto& [folder, package] : packages) {
    all += loaded_bytes(*package);
    largest = std::max(largest, loaded_bytes(*package));
  }
  return lanes_that_fit(*available, all, largest, std::max(config.batch.size, 1));
}

ResolvedConfig resolve_for(const Config& config, const std::string& output, const Devices& devices, int most_lanes) {
  return resolve(config, static_cast<int>(std::ceil(available_cores())), planned_team(output), devices, most_lanes);
}

nlohmann::json machine_json(const Devices& devices) {
  return {{"cpu", cpu_name()},
          {"cpu_features", cpu_features()},
          {"cpu_level", devices.cpu_level},
          {"cores", available_cores()},
          {"memory_bytes", memory_of_machine()},
          {"device", devices.name},
          {"gpus", devices.lanes_wait_for_gpu() ? devices.gpus() : 0}};
}

RunReport run_job(JobRequest request, const EngineFactory& factory, JobListener& listener) {
  const Config& config = request.config;
  const auto started = std::chrono::system_clock::now();

  // The output folder is locked, and known to be writable, before anything is planned.
  const std::string output = make_output_folder(config);
  const FolderLock lock(output);
  // After the output folder is made, because the trace may be inside.
  std::optional<TraceRecorder> recorder;
  if (!config.trace.file.empty()) {
    check_trace_place(config.trace.file);
    recorder.emplace();
  }
  TraceRecorder* const recording = recorder ? &*recorder : nullptr;
  RunFolder folder(output, started);

  // The stages are made before the plan, because a stage that refuses its options must not leave a plan behind.
  const ResolvedConfig usual = resolve_for(config, output, request.devices);
  const ResolvedConfig resolved =
      resolve_for(config, output, request.devices, most_lanes(config, request.packages, request.devices));
  const std::unique_ptr<const Clock> clock_of_run = make_clock(config);
  const Clock& clock = *clock_of_run;
  const std::int64_t begun_ns = clock.now_ns();
  PixelCache pixel_cache;
  PixelCache* const cache = config.input.source == "memory" ? &pixel_cache : nullptr;
  const auto views = planned_views(config, Views(request.spec.views).names());
  Execution execution(
      {config, resolved, request.packages, request.devices, views, output, KnownLimits::usual_file(), cache, recording},
      factory, clock);

  // Plan::next_segment() asks the store for finished segments. The store needs the hash of the plan, so it comes later.
  // That is early enough: only Feed calls next_segment().
  std::optional<SegmentStore> store;
  PlanOptions plan_options;
  plan_options.tool = tool;
  plan_options.add_new = request.add_new;
  plan_options.is_done = [&store](std::int64_t segment) { return store && store->segment_done(segment); };
  Plan plan(output, plan_settings(config, resolved, request.packages, request.devices), request.spec, plan_options);

  const auto sinks = sinks_of(views);
  SegmentStoreOptions store_options;
  if (std::ranges::any_of(sinks, [](const SinkEntry* sink) { return sink->make != nullptr; }))
    // Only sinks with `make` write files during the run.
    store_options.sync_side_files = [&] { sync_file_system(output); };
  store_options.committed = [&listener](const Manifest& segment) { listener.finished(segment); };
  store.emplace(output, plan.hash(), store_options);

  Feed feed(plan, *store, resolved.batch_size);
  Reader reader(plan.root(), decode_limits(views, resolved.graph.slab_bytes),
                parts_options(views, request.packages, resolved.graph.slab_bytes), config.read.max_file,
                reads_in_parts(config.chain), cache);
  Committer committer(*store, folder, listener, clock, recording, views);
  // All checks have passed. From here on, the attempt leaves a report.
  listener.accepted(folder.path());
  if (resolved.graph.lanes < usual.graph.lanes) {
    request.notes.push_back(few_lanes(resolved, usual));
    listener.warn(request.notes.back());
  }
  folder.write_run(nlohmann::json{
      {"tool", tool},
      {"started", utc_text(started)},
      {"machine", machine_json(request.devices)},
      {"config",
       config.text}}.dump(2));

  RunReport report;
  report.run = std::filesystem::path(folder.path()).filename().string();
  report.output_folder = output;
  report.started = utc_text(started);
  report.batch_size = resolved.batch_size;
  report.team = resolved.team;
  Attempt attempt{request, resolved, output, sinks,  lock,      folder,   clock,     execution,
                  plan,    *store,   feed,   reader, committer, listener, recording, begun_ns};
  execute_and_report(attempt, report);
  return report;
}

}  // namespace millrace
