#include "apps/run.hpp"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "apps/events.hpp"
#include "apps/page/report_page.hpp"
#include "apps/progress.hpp"
#include "apps/report_text.hpp"
#include "apps/serve/live_server.hpp"
#include "apps/signals.hpp"
#include "apps/terminal.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "io/files/source_names.hpp"
#include "io/input/source.hpp"
#include "run/builtin.hpp"
#include "run/capture.hpp"
#include "run/job.hpp"
#include "run/message_of.hpp"
#include "run/output_state.hpp"
#include "run/trace_file.hpp"
#include "run/variants.hpp"
#include "stages/encode.hpp"
#include "stages/sinks/sink.hpp"

namespace millrace {
namespace {

constexpr const char* only_drawn_scenes =
    ": they know only the drawn scenes of make demo, so their results on other pictures mean nothing. For real models: "
    "millrace model yolov8n.pt mobile_sam.pt, then --detector yolov8n.pkg --segmenter mobile_sam.pkg";

/// Notes about runs that succeed but may not do what the user expects: their results may mean nothing, for example.
/// They are printed even with --quiet.
std::vector<std::string> warnings(const RunArguments& arguments, const Config& config, const SourceSpec& spec,
                                  const Packages& packages) {
  std::vector<std::string> notes = config.notes;
  if (arguments.devices.kind == Devices::Kind::simulated)
    notes.emplace_back("the engine is simulated: the objects in the segments mean nothing");
  if (const auto there = gpus_of_driver();
      arguments.devices.kind == Devices::Kind::cpu && !there.empty() && config.device.kind == "auto") {
    notes.push_back("this machine has a GPU (" + there.front() +
                    "), but this program was built without CUDA: models run on the CPU. To use it, build Millrace with "
                    "MILLRACE_CUDA=ON");
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
  if (config.chain.find("segment") == nullptr && config.chain.find("semantic") == nullptr) {
    // Several views can have the same sinks.
    std::set<std::string> said;
    const auto note = [&](const Chain& chain) {
      for (const SinkEntry* sink : chain.options<Encode>().sinks()) {
        if (!sink->without_masks.empty() && said.insert(sink->without_masks).second)
          notes.push_back(sink->without_masks);
      }
    };
    note(config.chain);
    for (const auto& [view, chain] : config.of_views) note(chain);
  }
  return notes;
}

/// One line about the plan in the output folder; empty if it has none.
std::string planned_before(const RunArguments& arguments, const std::optional<OutputState>& state) {
  if (!state) return {};
  return "output: " + grouped(state->planned) + " planned, " + grouped(state->done()) + " done, " +
         grouped(state->left()) + " left; " +
         (arguments.add_new ? "a run adds the new pictures of this input"
          : state->end      ? "a run adds no new pictures without --add-new"
                            : "a run resumes the scan of the input where it stopped");
}

/// Pictures in a folder that could not be listed are neither planned nor failed, so no count shows them.
/// Only this message and the exit code do.
void tell_unreadable(const ScanCounts& counts, const std::string& remedy) {
  if (const std::string text = unreadable_folders(counts, remedy); !text.empty()) say(text);
}

/// The size of the windows of a package, and what blending them takes.
std::string windows_of(const Package& package) {
  const InputSpec& input = package.input;
  const bool volume = input.depth > 0;
  std::string sides = std::to_string(input.width) + " x " + std::to_string(input.height);
  if (volume) sides += " x " + std::to_string(input.depth);
  // One float for each channel, and one for the weights. With an orientation, any side may lie across the slices.
  const bool turned = !package.orientation.empty();
  const int rows = !volume ? input.height : turned ? std::max({input.width, input.height, input.depth}) : input.depth;
  const auto values = static_cast<double>((package.number("channels") + 1) * rows);
  return "windows of " + sides +
         (volume ? turned ? " voxels; the sums of a volume take up to " : " voxels; the sums of a volume take "
                 : " pixels; the sums of a picture take ") +
         readable_bytes(4 * values) + (volume ? " for each voxel of a slice" : " for each pixel of its width");
}

ExitCode show_dry_run(const RunArguments& arguments, const Config& config, SourceSpec spec, const Packages& packages) {
  std::string planned;
  if (!config.output.folder.empty() && std::filesystem::exists(config.output.folder)) {
    const std::string output = output_path(config);
    planned = planned_before(arguments, check_output(arguments, config, spec, packages, output));
    // The run does not scan its output folder either.
    spec = without_output(std::move(spec), output);
  }
  const DryRun found = dry_run(spec);
  if (found.items == 0 && planned.empty()) throw InputError(found.nothing_found);
  std::printf("%s, %s\n", count_of(found.items, "picture").c_str(),
              readable_bytes(static_cast<double>(found.bytes)).c_str());
  const auto views = planned_views(config, found.view_names);
  for (std::size_t i = 0; i < views.size(); ++i) {
    std::string models;  // the detector, and models of stages for which this view has options; all are listed below
    for (const auto& link : views[i].chain->links()) {
      for (const ModelUse& use : link.info.models) {
        const auto package = packages.find(use.folder);
        if (package == packages.end() || (link.has_recipe_options && !use.boxes_replace)) continue;
        models += ", " + std::string(package->second->task->model) + " " + package->second->name;
      }
    }
    std::printf("  view %s: %s%s\n", display_name(views[i].name).c_str(), grouped(found.per_view[i]).c_str(),
                models.c_str());
  }
  for (const auto& [extension, count] : found.per_extension) {
    const std::string name = extension.empty() ? "without an extension" : "." + display_name(extension);
    std::printf("  %s: %s\n", name.c_str(), grouped(count).c_str());
  }
  for (const auto& path : found.first_paths) std::printf("  %s\n", display_name(path).c_str());
  if (const std::string skipped = found.counts.summary(); !skipped.empty())
    std::printf("skipped: %s\n", skipped.c_str());
  std::string stages;
  for (const auto& link : config.chain.links()) stages += (stages.empty() ? "" : " -> ") + link.info.name;
  std::printf("stages: %s\n", stages.c_str());
  std::set<std::string> in_windows;
  for (const auto& view : views) {
    for (const auto& link : view.chain->links()) {
      for (const ModelUse& use : link.info.models) {
        if (use.of_windows) in_windows.insert(use.folder);
      }
    }
  }
  for (const auto& [folder, package] : packages) {
    std::printf("%s: %s (%s)\n", std::string(package->task->model).c_str(), package->name.c_str(),
                display_name(folder).c_str());
    if (in_windows.contains(folder)) std::printf("  %s\n", windows_of(*package).c_str());
  }
  if (!planned.empty()) std::puts(planned.c_str());
  std::puts(planned.empty() ? "only the input was scanned; nothing was written" : "nothing was written");
  std::fflush(stdout);
  tell_unreadable(found.counts, "");
  return found.counts[Skip::unreadable_folder].count == 0 ? ExitCode::ok : ExitCode::some_failed;
}

/// Prints what run_job() reports to stderr, writes it as events for other programs, and shows it to browsers.
class RunListener final : public JobListener {
 public:
  /// `events`, `server` and `signals` may be null.
  RunListener(bool quiet, const std::vector<std::string>& notes, EventLog* events, LiveServer* server,
              StopSignals* signals)
      : quiet_(quiet), notes_(notes), events_(events), server_(server), signals_(signals) {}

  void warn(const std::string& text) override { say(text); }
  void planned(const MemoryPlan& plan) override {
    if (!quiet_) say(plan.text());
  }
  void accepted(const std::string& attempt) override {
    for (const auto& note : notes_) say(note);  // not before: an error of the input is then the only message
    if (events_ != nullptr) events_->add("started", {{"attempt", attempt}, {"tool", tool}});
    if (server_ == nullptr) return;
    say(server_->text());  // also with --quiet: without its line, nobody knows a free port or a new token
    server_->run().accepted(attempt);
  }
  void failed(const std::string& error) override {
    if (events_ != nullptr) events_->add("failed", nlohmann::json::parse(error));
  }
  void finished(const Manifest& segment) override {
    if (events_ == nullptr) return;
    events_->add("segment", {{"file", "segments/" + SegmentFile{.segment = segment.segment}.name()},
                             {"items", segment.counts.items},
                             {"ok", segment.counts.ok},
                             {"objects", segment.counts.objects}});
  }
  void on_stop(std::function<void()> stop) override {
    if (signals_ != nullptr) signals_->on_stop([stop = std::move(stop)](int /*signal*/) { stop(); });
  }
  void began(std::function<ProgressSample()> sample) override {
    if (events_ != nullptr) events_->begin_progress(sample);
    if (server_ != nullptr) server_->run().began(sample);
    progress_ = std::make_unique<Progress>(progress_style(quiet_), std::move(sample));
  }
  void reports(std::function<RunReport()> so_far, std::function<std::string()> newest) override {
    if (server_ != nullptr) server_->run().reports(std::move(so_far), std::move(newest));
  }
  void ended() noexcept override {
    progress_.reset();
    if (server_ != nullptr) server_->run().ended();
    if (events_ != nullptr) events_->end_progress();
    // After the run its `stop` would refer to freed objects.
    if (signals_ != nullptr) signals_->on_stop({});
  }

 private:
  const bool quiet_;
  const std::vector<std::string>& notes_;
  EventLog* const events_;
  LiveServer* const server_;
  StopSignals* const signals_;
  std::unique_ptr<Progress> progress_;
};

/// Prints the report and writes its page.
/// Flushes stdout before it writes to stderr, so that the table comes first if both go to one place.
void show(const RunReport& report, bool quiet) {
  const nlohmann::json json = to_json(report);
  const std::string& output = report.output_folder;
  const auto print = [quiet](const std::string& text) {
    if (!quiet) std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  };
  // First, because thumbnails can take some seconds on a slow disk.
  print(to_text(json, output, terminal_columns(STDOUT_FILENO), wants_colour(STDOUT_FILENO)));
  std::string problem;
  try {
    // A stopped run has little time left.
    const Pictures pictures = report.state == "stopped" ? Pictures::none : Pictures::thumbnails;
    print(write_page(json, output, output + "/runs/" + report.run, "", pictures));
  } catch (const StorageError& error) {  // the results are complete, and report.json has the figures
    problem = "report.html was not written (" + std::system_category().message(error.error_number()) +
              "): `millrace report OUT --html` writes it later";
  } catch (const std::exception& error) {
    problem = std::string("report.html was not written: ") + error.what();
  }
  if (!problem.empty()) say(problem);
  tell_unreadable(report.scan, ", then run again with --add-new");
  if (report.state == "stopped") say("stopped before the end; run the same command again to resume");
}

ExitCode exit_code(const RunReport& report, const StopSignals* signals) {
  if (report.state == "stopped") {
    return signals != nullptr && signals->received() == SIGTERM ? ExitCode::terminated : ExitCode::interrupted;
  }
  const bool all_good = report.counts.failed_items() == 0 && report.scan[Skip::unreadable_folder].count == 0;
  return all_good ? ExitCode::ok : ExitCode::some_failed;
}

void tell_end(EventLog& events, const RunReport& report, ExitCode code) {
  const nlohmann::json json = to_json(report);
  events.add("ended", {{"state", report.state},
                       {"exit_code", static_cast<int>(code)},
                       {"ok", report.counts.ok},
                       {"failed", report.counts.failed_items()},
                       {"planned", report.planned},
                       {"pictures_per_s", json.at("run_window").at("pictures_per_s")},
                       {"verdict", report.verdict.sentence}});
  if (const std::string problem = events.problem(); !problem.empty()) say(problem);
}

// If the page cannot show the end, the run ends all the same.
void say_end(LiveServer& server, const std::function<void()>& tell) noexcept {
  try {
    tell();
    server.end();
  } catch (const std::exception&) {  // such as no memory; the destructor ends the server
  }
}

}  // namespace

std::optional<OutputState> check_output(const RunArguments& arguments, const Config& config, const SourceSpec& spec,
                                        const Packages& packages, const std::string& output) {
  PlanOptions options;
  options.tool = tool;
  options.add_new = arguments.add_new;
  const auto settings =
      plan_settings(config, resolve_for(config, output, arguments.devices), packages, arguments.devices);
  // It takes no lock, so a dry run works next to a run.
  if (!check_plan(output, settings, spec, options)) return std::nullopt;
  return read_output(output);
}

CheckedRun check_run(const RunArguments& arguments, const Config& config, const VariantOpener& open_variant) {
  CheckedRun checked{.spec = source_spec(config)};
  if (!arguments.dry_run && config.output.folder.empty()) {
    throw UsageError("no output folder is named; add --output FOLDER");
  }
  check_models(config, checked.spec);
  // These throw on errors of input and models, before the output folder is made.
  (void)Source(checked.spec);
  (void)parse_capture(config.trace.capture);
  if (!config.trace.file.empty()) check_trace_name(config.trace.file);
  if (!config.serve.address.empty()) (void)parse_serve_address(config.serve.address);
  (void)memory_limit(config.device.memory, {});
  checked.packages = read_packages(config);
  checked.notes = warnings(arguments, config, checked.spec, checked.packages);
  // A dry run opens no LibTorch.
  for (auto& note :
       use_variants(checked.packages, config, arguments.devices, arguments.dry_run ? VariantOpener() : open_variant))
    checked.notes.push_back(std::move(note));
  return checked;
}

ExitCode run(const RunArguments& arguments, const Config& config, const EngineFactory& factory,
             const VariantOpener& open_variant, StopSignals* signals) {
  auto [spec, packages, notes] = check_run(arguments, config, open_variant);
  if (arguments.dry_run) {
    const ExitCode code = show_dry_run(arguments, config, std::move(spec), packages);
    for (const auto& note : notes) say(note);
    return code;
  }
  // First, because a port that is taken must leave nothing behind.
  std::optional<LiveServer> server;
  if (!config.serve.address.empty()) server.emplace(config.serve.address, config.output.folder);
  std::optional<EventLog> events;
  if (!config.events.file.empty()) {
    const std::filesystem::path folder = std::filesystem::path(config.events.file).parent_path();
    std::error_code error;
    // The file may be in the output folder, which is new.
    if (!folder.empty() && std::filesystem::weakly_canonical(folder, error) ==
                               std::filesystem::weakly_canonical(config.output.folder, error))
      (void)make_output_folder(config);
    events.emplace(config.events.file);
  }
  RunListener listener(arguments.quiet, notes, events ? &*events : nullptr, server ? &*server : nullptr, signals);
  try {
    const RunReport report = run_job(
        {config, arguments.devices, std::move(spec), std::move(packages), notes, arguments.add_new}, factory, listener);
    show(report, arguments.quiet);
    if (server) say_end(*server, [&] { server->run().finished(report); });
    const ExitCode code = exit_code(report, signals);
    if (events) tell_end(*events, report, code);
    return code;
  } catch (const std::exception& error) {
    if (server) say_end(*server, [&] { server->run().failed(message_of(error)); });
    const ExitCode code = exit_code_of(std::current_exception());
    if (events) {
      events->add("ended", {{"state", "failed"}, {"exit_code", static_cast<int>(code)}, {"error", message_of(error)}});
      if (const std::string problem = events->problem(); !problem.empty()) say(problem);
    }
    throw;
  }
}

}  // namespace millrace
