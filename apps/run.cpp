#include "apps/run.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/progress.hpp"
#include "apps/report_text.hpp"
#include "apps/signals.hpp"
#include "apps/terminal.hpp"
#include "base/text.hpp"
#include "io/files/lock.hpp"
#include "io/files/source_names.hpp"
#include "io/input/source.hpp"
#include "io/results/json_line.hpp"
#include "io/results/run_folder.hpp"
#include "io/sinks/coco.hpp"
#include "pipeline/cores.hpp"
#include "run/builtin.hpp"
#include "run/capture.hpp"
#include "run/execution.hpp"
#include "run/feed.hpp"
#include "run/output_state.hpp"
#include "run/resource_log.hpp"
#include "run/run_options.hpp"
#include "stages/encode.hpp"

namespace millrace {
namespace {

constexpr const char* tool = "millrace " MILLRACE_VERSION;

constexpr std::int64_t told_at_most = 20;  // a line each on the console; more would bury what else stands there

std::string utc_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

constexpr const char* only_drawn_scenes =
    ": they know only drawn scenes (make demo), and what they find elsewhere means nothing. Real ones: make model "
    "WEIGHTS=yolov8n.pt SEGMENTER=mobile_sam.pt, then --detector yolov8n.pkg --segmenter mobile_sam.pkg";

constexpr const char* empty_label_maps =
    "--format png without a segmenter: only masks leave pixels, so the label maps will be empty; leave png "
    "out, or take a recipe with 'segment' and 'postprocess'";

/// What makes results worth nothing, though nothing fails. It is said even where nothing else is.
std::vector<std::string> warnings(const RunArguments& arguments, const Chain& chain, const SourceSpec& spec,
                                  const Packages& packages) {
  std::vector<std::string> notes;
  if (arguments.devices.kind == Devices::Kind::simulated)
    notes.emplace_back("the engine is simulated: what the segments say of objects means nothing");
  if (const auto there = gpus_of_driver(); arguments.devices.kind == Devices::Kind::cpu && !there.empty() &&
                                           arguments.settings.parse<DeviceOptions>().kind == "auto") {
    notes.push_back("a GPU is there (" + there.front() +
                    "), and this program was built without CUDA: models run on the CPU");
  }
  std::string builtin;
  for (const auto& [folder, package] : packages) {
    if (package->name.starts_with("builtin-")) builtin += (builtin.empty() ? "" : ", ") + package->name;
  }
  if (!builtin.empty() && !are_drawn_scenes(spec.inputs)) {
    notes.push_back((arguments.builtin_models ? "no model is named, so the built-in ones run"
                                              : "built-in models run (" + builtin + ")") +
                    std::string(only_drawn_scenes));
  }
  const auto encode = parse_options<Encode::Options>(Encode::name, arguments.settings.values(Encode::name));
  if (encode.has("png") && chain.find("segment") == nullptr) notes.emplace_back(empty_label_maps);
  return notes;
}

Numbers numbers_for(const Settings& settings, const std::string& output, const Devices& devices) {
  return resolve(settings, static_cast<int>(std::ceil(available_cores())), planned_team(output), devices);
}

/// What lay in folders that could not be listed is neither planned nor failed: it must be said, and seen in the exit
/// code.
void tell_unreadable(const ScanCounts& counts, const std::string& afterwards) {
  const Tally& folders = counts[Skip::unreadable_folder];
  if (folders.count == 0) return;
  say(count_of(folders.count, "folder") + " could not be listed (" + names_of(folders) +
      "), so what is in there is not in the plan: make it readable" + afterwards);
}

/// The plan in the output folder, if there is one, as a line. Throws what a run would throw that does not fit it.
std::string planned_before(const RunArguments& arguments, const SourceSpec& spec, const Packages& packages,
                           const std::string& output) {
  PlanOptions options;
  options.tool = tool;
  options.add_new = arguments.add_new;
  const auto settings = plan_settings(arguments.settings, numbers_for(arguments.settings, output, arguments.devices),
                                      packages, arguments.devices);
  if (!check_plan(output, settings, spec, options)) return {};
  const auto state = read_output(output);
  if (!state) return {};
  return "output: " + grouped(state->planned) + " planned, " + grouped(state->done()) + " done, " +
         grouped(state->left()) + " left; " +
         (arguments.add_new ? "what its plan lacks of this input is added"
          : state->end      ? "a run looks for no others unless --add-new is given"
                            : "its scan goes on where it stopped");
}

ExitCode show_dry_run(const RunArguments& arguments, SourceSpec spec, const Chain& chain, const Packages& packages) {
  const Settings& settings = arguments.settings;
  std::string planned;
  if (const auto folder = settings.parse<OutputOptions>().folder; !folder.empty() && std::filesystem::exists(folder)) {
    const std::string output = output_path(settings);
    planned = planned_before(arguments, spec, packages, output);
    spec = without_output(std::move(spec), output);
  }
  const DryRun found = dry_run(spec);
  if (found.items == 0 && planned.empty()) throw InputError(found.nothing_found);
  std::printf("%s, %s\n", count_of(found.items, "picture").c_str(),
              readable_bytes(static_cast<double>(found.bytes)).c_str());
  const auto views = planned_views(settings, found.view_names);
  for (std::size_t i = 0; i < views.size(); ++i) {
    const auto detector = packages.find(views[i].detector);
    std::printf("  view %s: %s%s\n", display_name(views[i].name).c_str(), grouped(found.per_view[i]).c_str(),
                detector == packages.end() ? "" : (", detector " + detector->second->name).c_str());
  }
  for (const auto& [extension, count] : found.per_extension) {
    std::printf("  .%s: %lld\n", display_name(extension).c_str(), static_cast<long long>(count));
  }
  for (const auto& path : found.first_paths) std::printf("  %s\n", display_name(path).c_str());
  if (const std::string skipped = found.counts.summary(); !skipped.empty())
    std::printf("passed over: %s\n", skipped.c_str());
  std::string stages;
  for (const auto& link : chain.links()) stages += (stages.empty() ? "" : " -> ") + link.info.name;
  std::printf("stages: %s\n", stages.c_str());
  for (const auto& [folder, package] : packages) {
    std::printf("%s: %s (%s)\n", package->task == Task::detect ? "detector" : "segmenter", package->name.c_str(),
                display_name(folder).c_str());
  }
  if (!planned.empty()) std::puts(planned.c_str());
  std::puts(planned.empty() ? "only the input was looked at; nothing was written" : "nothing was written");
  std::fflush(stdout);
  tell_unreadable(found.counts, "");
  return found.counts[Skip::unreadable_folder].count == 0 ? ExitCode::ok : ExitCode::some_failed;
}

std::string error_line(const Frame& frame) {
  JsonWriter json;
  json.begin_object().key("id").value(frame.item.id);
  write_path("path", frame.item.path, json);
  json.key("stage").value(frame.failure->stage).key("reason").value(to_string(frame.failure->reason));
  json.key("detail").value(frame.failure->detail).end_object();
  return json.take();
}

/// One run, from an output folder that is ours to its report.
class Run {
 public:
  Run(const RunArguments& arguments, const Chain& chain, SourceSpec spec, Packages packages,
      std::vector<std::string> notes, const EngineFactory& factory, StopSignals* signals)
      : arguments_(arguments),
        settings_(arguments.settings),
        chain_(chain),
        packages_(std::move(packages)),
        devices_(arguments.devices),
        notes_(std::move(notes)),
        signals_(signals),
        started_(std::chrono::system_clock::now()),
        output_(make_output_folder(settings_)),
        lock_(output_),
        folder_(output_, started_),
        formats_(parse_options<Encode::Options>(Encode::name, settings_.values(Encode::name))),
        numbers_(numbers_for(settings_, output_, devices_)),
        // Before the plan: what stages say against their options must not leave a plan behind.
        execution_({settings_,
                    chain_,
                    numbers_,
                    packages_,
                    devices_,
                    planned_views(settings_, Views(spec.views).names()),
                    {},
                    output_},
                   ends(), factory, clock_),
        plan_(output_, plan_settings(settings_, numbers_, packages_, devices_), std::move(spec), plan_options()),
        store_(output_, plan_.hash(), store_options()),
        feed_(plan_, store_, numbers_.batch_size) {
    execution_.set_input_root(plan_.root());
    store_for_plan_ = &store_;
  }

  ExitCode run() {
    folder_.write_run(
        nlohmann::json{{"tool", tool}, {"started", utc_text(started_)}, {"config", settings_.print()}}.dump(2));
    RunReport report = begin_report();
    try {
      const Result result = execute();
      fill_books(report);
      fill_times(report, result);
      check_books(report);
      if (report.state == "finished" && formats_.has("coco")) export_coco(output_, output_ + "/coco.json", {});
    } catch (const std::exception& error) {
      report.state = "failed";
      report.error = message_of(error);
      fill_books(report);
      write(report);
      throw;
    }
    write(report);
    for (const char* name : {"overlay", "labels", "coco.json"}) {
      if (std::filesystem::exists(output_ + "/" + name)) report.side_outputs.emplace_back(name);
    }
    show(report);
    return exit_code(report);
  }

 private:
  PlanOptions plan_options() {
    PlanOptions options;
    options.tool = tool;
    options.add_new = arguments_.add_new;
    options.is_done = [this](std::int64_t segment) {
      return store_for_plan_ != nullptr && store_for_plan_->segment_done(segment);
    };
    return options;
  }

  SegmentStoreOptions store_options() {
    SegmentStoreOptions options;
    if (formats_.has("overlay") || formats_.has("png")) {
      options.sync_side_files = [this] { sync_file_system(output_); };
    }
    return options;
  }

  ExecutionEnds ends() {
    ExecutionEnds ends;
    ends.next = [this] { return feed_.next(); };
    ends.stop_next = [this] { plan_.stop(); };
    ends.commit = [this](const Batch& batch, std::vector<std::string> lines) { commit(batch, std::move(lines)); };
    return ends;
  }

  void commit(const Batch& batch, std::vector<std::string> texts) {
    std::vector<Line> lines;
    lines.reserve(texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const Frame& frame = *batch.frames[i];
      const Detections* found = frame.columns.find(detections);
      written_bytes_ += static_cast<std::int64_t>(texts[i].size()) + 1;
      Line line{frame.item.id, std::move(texts[i]), !frame.failed(), Reason::internal, 0};
      if (frame.failed()) {
        line.reason = frame.failure->reason;
        folder_.add_error(error_line(frame));
        tell(frame);
      } else if (found != nullptr) {
        line.objects = static_cast<int>(found->list.size());
      }
      lines.push_back(std::move(line));
    }
    store_.append(batch.place().segment, batch.place().segment_batch, lines);
  }

  void tell(const Frame& frame) {
    if (told_ == told_at_most) {
      say("more pictures failed: all stand in " + display_name(folder_.path()) + "/errors.jsonl");
    } else if (told_ < told_at_most) {
      say(display_name(frame.item.path) + ": " + std::string(to_string(frame.failure->reason)) + ": " +
          display_name(frame.failure->detail));
    }
    ++told_;
  }

  Result execute() {
    if (signals_ != nullptr) signals_->on_stop([this](int /*signal*/) { execution_.request_stop(); });
    Result result;
    try {
      execution_.prepare();
      if (!arguments_.quiet) {
        for (const auto& plan : execution_.memory_plans()) say(plan.text());
      }
      const Progress progress(progress_style(arguments_.quiet), [this] { return sample(); });
      ResourceLog resources(folder_.path() + "/resources.csv", devices_.buses, process_cpu_ns);
      result = execution_.run();
      gpus_ = resources.finish();
      execution_.remember_limits();
      store_.sync();
    } catch (...) {
      execution_.remember_limits();
      if (signals_ != nullptr) signals_->on_stop({});
      throw;
    }
    if (signals_ != nullptr) signals_->on_stop({});
    return result;
  }

  ProgressSample sample() const {
    const Counts counts = store_.totals();
    const PlanTotals totals = plan_.totals();
    return {execution_.snapshot(), counts.items,    counts.failed_items(),
            totals.items,          totals.complete, execution_.ready()};
  }

  RunReport begin_report() const {
    RunReport report;
    report.run = std::filesystem::path(folder_.path()).filename().string();
    report.output_folder = output_;
    report.started = utc_text(started_);
    report.batch_size = numbers_.batch_size;
    report.team = numbers_.team;
    return report;
  }

  void fill_times(RunReport& report, const Result& result) const {
    report.state = result.stopped ? "stopped" : "finished";
    for (const auto& load : report.models.loads) report.load_ns += load.wall_ns;
    // Packages that come back after they were evicted load in the run proper.
    report.warm_up_ns = std::max<std::int64_t>(0, execution_.warm_up_ns() - report.load_ns);
    report.window = execution_.window(result);
    report.verdict = judge(execution_.window_begun(), execution_.finished(result));
    report.verdict.sentence = in_users_words(report.verdict.sentence);
  }

  void fill_books(RunReport& report) const {
    const PlanTotals totals = plan_.totals();
    report.planned = totals.items;
    report.plan_complete = totals.complete;
    report.counts = store_.totals();
    report.failed_now = told_;
    report.scan = plan_.counts();
    report.models = execution_.models();
    report.memory = execution_.memory_plans();
    report.gpus = gpus_;
    const StageCounters& counters = execution_.counters();
    report.read_bytes = execution_.read_bytes() + counters.bytes_read_again;
    report.written_bytes = written_bytes_ + counters.side_file_bytes;
    report.notes = notes_;
    if (lock_.note()) report.notes.push_back(*lock_.note());
    for (const auto& note : store_.notes()) report.notes.push_back(note);
    if (counters.redone_batches > 0) {
      report.notes.push_back("memory ran out for all that a batch holds; " + std::to_string(counters.redone_batches) +
                             " times pictures were done again in halves: a lower batch.size is faster");
    }
    note(report, counters.decode_warnings.get(), "taken although their data have faults",
         "taken although its data have faults");
    note(report, counters.wrong_extensions.get(), "of another format than their names say",
         "of another format than its name says");
    const DeviceCounts device = execution_.device_counts();
    report.calls = {{"uploads", device.uploads},
                    {"downloads", device.downloads},
                    {"waits", device.waits},
                    {"overflows", device.overflows},
                    {"detector_calls", counters.detector_calls},
                    {"detector_skipped", counters.detector_skipped},
                    {"encoder_calls", counters.encoder_calls},
                    {"decoder_calls", counters.decoder_calls},
                    {"decoder_boxes", counters.decoder_boxes},
                    {"decoder_slots", counters.decoder_slots},
                    {"split_calls", counters.split_calls},
                    {"redone_batches", counters.redone_batches},
                    {"bisect_calls", counters.bisect_calls},
                    {"truncated_detections", counters.truncated_detections},
                    {"overlays_left_out", counters.overlays_left_out},
                    {"decode_warnings", counters.decode_warnings.get().count},
                    {"wrong_extensions", counters.wrong_extensions.get().count}};
  }

  static void note(RunReport& report, const Tally& pictures, const std::string& of_many, const std::string& of_one) {
    if (pictures.count == 0) return;
    report.notes.push_back(count_of(pictures.count, "picture") + ", " + (pictures.count == 1 ? of_one : of_many) +
                           ": " + names_of(pictures));
  }

  static void check_books(const RunReport& report) {
    if (report.state != "finished" || report.planned == report.counts.items) return;
    throw RunError("books", std::to_string(report.planned) + " items are planned and " +
                                std::to_string(report.counts.items) +
                                " are accounted for. This is a bug of the program; what is committed is sound");
  }

  void write(const RunReport& report) {
    try {
      folder_.write_report(to_json(report).dump(2));
    } catch (const StorageError& error) {
      if (report.state != "failed") throw;  // else the first error is the one to tell
      say(error.what());
    }
  }

  void show(const RunReport& report) const {
    if (!arguments_.quiet)
      std::fputs(to_text(report, terminal_columns(STDOUT_FILENO), wants_colour(STDOUT_FILENO)).c_str(), stdout);
    std::fflush(stdout);
    tell_unreadable(report.scan, ", then run again with --add-new");
    if (report.state == "stopped") say("stopped before the end; the same command finishes the rest");
  }

  ExitCode exit_code(const RunReport& report) const {
    if (report.state == "stopped") {
      return signals_ != nullptr && signals_->received() == SIGTERM ? ExitCode::terminated : ExitCode::interrupted;
    }
    const bool all_good = report.counts.failed_items() == 0 && report.scan[Skip::unreadable_folder].count == 0;
    return all_good ? ExitCode::ok : ExitCode::some_failed;
  }

  // In the order in which they are needed: the output is locked and proved writable before anything is planned.
  const RunArguments& arguments_;
  const Settings& settings_;
  const Chain& chain_;
  const Packages packages_;
  const Devices& devices_;
  const std::vector<std::string> notes_;  // known before the run
  StopSignals* signals_;
  const std::chrono::system_clock::time_point started_;
  const std::string output_;
  const FolderLock lock_;
  RunFolder folder_;
  const Encode::Options formats_;
  const SteadyClock clock_;
  const Numbers numbers_;
  std::vector<GpuSummary> gpus_;
  std::int64_t written_bytes_ = 0;
  std::int64_t told_ = 0;  // pictures of this attempt that failed
  Execution execution_;
  const SegmentStore* store_for_plan_ = nullptr;
  Plan plan_;
  SegmentStore store_;
  Feed feed_;
};

}  // namespace

ExitCode run(const RunArguments& arguments, const EngineFactory& factory, StopSignals* signals) {
  const Settings& settings = arguments.settings;
  if (arguments.print_config) {
    std::fputs(settings.print().c_str(), stdout);
    return ExitCode::ok;
  }
  const Chain chain(settings.stages(), [&](const std::string& stage) { return settings.values(stage); });
  SourceSpec spec = source_spec(settings);
  if (!arguments.dry_run && settings.parse<OutputOptions>().folder.empty()) {
    throw UsageError("no output folder is named; add --output FOLDER");
  }
  check_models(settings, chain, spec);
  // What is wrong with input and models is said before the output folder is made.
  (void)Source(spec);
  (void)parse_capture(settings.parse<TraceOptions>().capture);
  (void)memory_limit(settings.parse<DeviceOptions>().memory, {});
  Packages packages = read_packages(settings, chain);
  const std::vector<std::string> notes = warnings(arguments, chain, spec, packages);
  const auto tell = [&] {
    for (const auto& note : notes) say(note);
  };
  if (arguments.dry_run) {
    const ExitCode code = show_dry_run(arguments, std::move(spec), chain, packages);
    tell();
    return code;
  }
  Run job(arguments, chain, std::move(spec), std::move(packages), notes, factory, signals);
  tell();  // where the input is what is wrong, only that is said
  return job.run();
}

}  // namespace millrace
