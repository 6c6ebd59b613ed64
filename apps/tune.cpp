#include "apps/tune.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <stop_token>
#include <utility>

#include "apps/arguments.hpp"
#include "apps/estimate.hpp"
#include "apps/format.hpp"
#include "apps/run.hpp"
#include "apps/signals.hpp"
#include "apps/temporary_folder.hpp"
#include "apps/terminal.hpp"
#include "apps/tune_trial.hpp"
#include "base/text.hpp"
#include "io/files/files.hpp"
#include "io/files/source_names.hpp"
#include "pipeline/cores.hpp"
#include "run/cpu_plan.hpp"
#include "run/job.hpp"
#include "run/known_limits.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t largest_sample = 8192;
constexpr std::int64_t fillings = 3;     // a sample is longer than the pipeline fills and drains
constexpr double worth_a_recipe = 1.02;  // smaller gains are noise
constexpr std::int64_t largest_file = 16 << 20;

std::string time_text(double seconds) {
  return seconds < 1 ? format("%.0f ms", 1000 * seconds) : format("%.2f s", seconds);
}

std::string utc_day() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 16> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts)};
}

/// The precisions that these devices have, the one of the settings first.
std::vector<std::string> precisions_of(const Settings& settings, const Config& config, const Devices& devices) {
  std::vector<std::string> all{settings.text("device.precision")};
  const auto exists = [&](const std::string& precision) {
    try {
      Devices copy = devices;
      Settings changed = settings;
      changed.set("device.precision", {precision}, "tune");
      Config other = parse_config(changed);
      other.output.folder.clear();
      copy.cpu_level.clear();
      use_cpu_level(other, copy);
      return find_precisions(precision, copy).by_task != find_precisions(config.device.precision, devices).by_task;
    } catch (const std::exception&) {
      return false;
    }
  };
  std::vector<std::string> others{"bf16", "fp16"};
  if (settings.runs("segment")) others.insert(others.begin(), "segment=bf16");
  for (const std::string& precision : others) {
    if (exists(precision)) all.push_back(precision);
  }
  return all;
}

/// The head of an option's column, and its width.
std::string head_of(const Knob& knob) {
  if (knob.option == "batch.size") return "batch";
  if (knob.option == "gate.frames") return "gate";
  return knob.option.substr(knob.option.find('.') + 1);
}
int width_of(const Knob& knob) {
  std::size_t width = head_of(knob).size();
  for (const std::string& value : knob.values) width = std::max(width, value.size());
  return static_cast<int>(width);
}

/// One `millrace tune`.
class Tuning {
 public:
  Tuning(const TuneArguments& arguments, const Config& config, CheckedRun checked, StopSignals* signals)
      : arguments_(arguments),
        config_(config),
        checked_(std::move(checked)),
        signals_(signals),
        folder_(existing_folder(fs::absolute(arguments.output).parent_path().string()), "tune"),
        trials_(arguments.run.settings, folder_.path(), signals) {}

  ExitCode run(std::int64_t pictures) {
    const Devices& devices = arguments_.run.devices;
    const int lanes = most_lanes(config_, checked_.packages, devices);
    const ResolvedConfig resolved = resolve_for(config_, "", devices, lanes);
    const std::int64_t frames = resolved.graph.admission_items;
    // The first run shows how many pictures take the wanted time.
    trials_.use_sample(plan_sample(pictures, fillings * frames), fillings * frames);
    const TrialRun pilot = trials_.run({}, "pilot");
    if (stopped()) return stop_code();
    require(pilot);
    const auto seconds = static_cast<std::int64_t>(std::ceil(pilot.pictures_per_s * arguments_.seconds));
    const std::int64_t wanted = std::min(std::clamp(seconds, fillings * frames, largest_sample), pictures);
    // Some trials take a few pictures more.
    trials_.use_sample(plan_sample(pictures, wanted + wanted / 2), wanted);
    // Brings the files into the system's cache. Otherwise the first trial would be slower than the others.
    const TrialRun cached = trials_.run({}, "pilot");
    if (stopped()) return stop_code();
    require(cached);
    if (pictures < fillings * frames)
      say("the input has only " + count_of(pictures, "picture") +
          ", so a trial mostly fills and drains the pipeline, and its rate means little; name more pictures");
    const int cores = static_cast<int>(std::ceil(available_cores()));
    const TuneKnobs knobs = knobs_for(arguments_.run.settings, resolved, devices, !checked_.packages.empty(), cores,
                                      lanes, static_cast<int>(std::max(wanted / fillings, frames)),
                                      precisions_of(arguments_.run.settings, config_, devices));
    if (knobs.knobs.empty())
      throw UsageError("every option that `millrace tune` could change is set; leave some of them out");
    show_head(knobs, wanted, pilot.pictures_per_s);
    Tuner tuner(knobs.knobs, knobs.defaults, arguments_.most_latency_s,
                [&](const TunerPoint& point) { return allowed(knobs.knobs, point, wanted); });
    while (std::ssize(tuner.trials()) < arguments_.trials) {
      const auto point = tuner.propose();
      if (!point) break;
      tuner.add(measure(tuner, *point));
      if (stopped()) return stop_code();
    }
    const Trial* const best = tuner.best();
    if (best == nullptr) {
      write_json(tuner, {}, {});
      throw UsageError("no trial kept the latency of " + time_text(*arguments_.most_latency_s) + "; the lowest was " +
                       time_text(lowest_latency(tuner)) +
                       ". Allow more time, or set options such as gate.frames yourself");
    }
    std::vector<TunePair> pairs;
    if (best->point != knobs.defaults) {
      pairs = measure_pairs(tuner, *best);
      if (stopped()) return stop_code();
    }
    finish(tuner, *best, pairs);
    return ExitCode::ok;
  }

  /// Writes the recipe with the values of an earlier tuning; false if nothing is remembered.
  bool recall() {
    const std::string file = memory_file();
    if (arguments_.again || !arguments_.json.empty() || file.empty() || !fs::exists(file)) return false;
    const Json known = Json::parse(read_text_file(file, largest_file), nullptr, false);
    if (!known.is_object() || known.value("key", Json()) != key()) return false;
    std::vector<TunedValue> values;
    try {
      for (const Json& value : known.at("values"))
        values.push_back({value.at("option"), value.at("value"), value.at("reason")});
      write_recipe(values, known.at("summary").get<std::vector<std::string>>());
    } catch (const Json::exception&) {  // damaged, so it is measured again
      return false;
    }
    std::printf("these models were tuned on this machine on %s; --again measures again\n",
                known.value("day", std::string("an unknown day")).c_str());
    return true;
  }

 private:
  [[nodiscard]] bool stopped() const { return signals_ != nullptr && signals_->received() != 0; }
  [[nodiscard]] ExitCode stop_code() const {
    say("stopped before the end; no recipe is written");
    return signals_->received() == SIGTERM ? ExitCode::terminated : ExitCode::interrupted;
  }

  /// The defaults must run.
  static void require(const TrialRun& outcome) {
    if (outcome.ok) return;
    const std::string why = outcome.why();
    throw ModelError("a trial with the settings as they are failed" +
                     (why.empty() ? " without a message: `millrace run` shows more" : ": " + why));
  }

  /// Two batches must pass the gate, and each lane must have two batches of the pictures.
  static bool allowed(const std::vector<Knob>& knobs, const TunerPoint& point, std::int64_t pictures) {
    int batch = 1, gate = 0, lanes = 1;
    for (std::size_t i = 0; i < knobs.size(); ++i) {
      const int value = std::atoi(knobs[i].values[point[i]].c_str());
      if (knobs[i].option == "batch.size") batch = value;
      if (knobs[i].option == "gate.frames") gate = value;
      if (knobs[i].option == "threads.lanes") lanes = value;
    }
    return (gate == 0 || gate >= 2 * batch) && 2 * std::int64_t{batch} * lanes <= pictures;
  }

  static std::vector<std::pair<std::string, std::string>> values_of(const Tuner& tuner, const TunerPoint& point) {
    std::vector<std::pair<std::string, std::string>> values;
    for (std::size_t i = 0; i < point.size(); ++i)
      values.emplace_back(tuner.knobs()[i].option, tuner.knobs()[i].values[point[i]]);
    return values;
  }

  Trial measure(const Tuner& tuner, const TunerPoint& point) {
    const bool first = tuner.trials().empty();
    const TrialRun outcome = trials_.run(values_of(tuner, point), first ? "defaults" : "trial");
    Trial trial{point, outcome.ok, true, outcome.pictures_per_s, outcome.latency_s, outcome.recording};
    if (stopped()) return trial;
    if (first) require(outcome);
    std::string note = first ? "defaults" : "";
    if (!outcome.ok) {
      note = outcome.ran_out_of_memory() ? "out of memory" : "failed: " + outcome.why();
    } else if (!first && precision_of(tuner, point) != precision_of(tuner, tuner.trials().front().point)) {
      const Agreement it = agreement(trials_.output("defaults"), trials_.output("trial"));
      agreements_[precision_of(tuner, point)] = it;
      trial.usable = it.good;
      if (!it.good) note = "not used: " + it.text();
    }
    show_row(tuner, trial, note);
    return trial;
  }

  static std::string precision_of(const Tuner& tuner, const TunerPoint& point) {
    for (std::size_t i = 0; i < point.size(); ++i) {
      if (tuner.knobs()[i].option == "device.precision") return tuner.knobs()[i].values[point[i]];
    }
    return {};
  }

  void show_head(const TuneKnobs& knobs, std::int64_t pictures, double rate) const {
    const double seconds = static_cast<double>(pictures) / rate;
    std::printf(
        "each trial runs about %s, which take %.0f s with the defaults, and the time to load; at most %d trials and "
        "%s\n",
        count_of(pictures, "picture").c_str(), seconds, arguments_.trials, count_of(arguments_.pairs, "pair").c_str());
    std::string line = "trial";
    for (const Knob& knob : knobs.knobs) line += format("  %*s", width_of(knob), head_of(knob).c_str());
    std::printf("%s  pictures/s  latency p95\n", line.c_str());
    std::fflush(stdout);
  }

  static void show_row(const Tuner& tuner, const Trial& trial, const std::string& note) {
    std::string line = format("%5zu", tuner.trials().size() + 1);
    for (std::size_t i = 0; i < trial.point.size(); ++i) {
      const Knob& knob = tuner.knobs()[i];
      line += format("  %*s", width_of(knob), knob.values[trial.point[i]].c_str());
    }
    line += trial.fits ? format("  %10.2f  %11s", trial.frames_per_s, time_text(trial.latency_s).c_str())
                       : format("  %10s  %11s", "-", "-");
    std::printf("%s%s\n", line.c_str(), note.empty() ? "" : ("  " + display_name(note)).c_str());
    std::fflush(stdout);
  }

  static double lowest_latency(const Tuner& tuner) {
    double lowest = 0;
    for (const Trial& trial : tuner.trials()) {
      if (trial.fits && (lowest == 0 || trial.latency_s < lowest)) lowest = trial.latency_s;
    }
    return lowest;
  }

  std::vector<TunePair> measure_pairs(const Tuner& tuner, const Trial& best) {
    const auto defaults = values_of(tuner, tuner.trials().front().point), tuned = values_of(tuner, best.point);
    std::vector<TunePair> pairs;
    for (int i = 0; i < arguments_.pairs && !stopped(); ++i) {
      TunePair pair;
      // The order changes, so that a machine that gets slower favours neither.
      for (const bool of_defaults : {i % 2 == 0, i % 2 != 0}) {
        const TrialRun outcome = trials_.run(of_defaults ? defaults : tuned, "trial");
        if (stopped()) return pairs;
        if (!outcome.ok) throw ModelError("a run of a pair failed: " + outcome.why());
        (of_defaults ? pair.defaults : pair.best) = outcome.pictures_per_s;
      }
      pairs.push_back(pair);
      std::printf("pair %d: defaults %.2f, tuned %.2f pictures/s, %.2f times as fast\n", i + 1, pair.defaults,
                  pair.best, pair.best / pair.defaults);
      std::fflush(stdout);
    }
    return pairs;
  }

  void finish(Tuner& tuner, const Trial& best, const std::vector<TunePair>& pairs) {
    std::vector<double> ratios;
    for (const TunePair& pair : pairs) ratios.push_back(pair.best / pair.defaults);
    std::ranges::sort(ratios);
    const double median = ratios.empty() ? 1 : ratios[ratios.size() / 2];
    const Trial& defaults = tuner.trials().front();
    // A latency that the defaults miss is worth a lower rate.
    const bool keeps = !arguments_.most_latency_s || defaults.latency_s <= *arguments_.most_latency_s;
    const Trial& chosen = keeps && !pairs.empty() && median < worth_a_recipe ? defaults : best;
    std::vector<std::string> summary{
        "Tuned by millrace " MILLRACE_VERSION " on " + utc_day() + " for " +
            (arguments_.most_latency_s ? "a latency of " + time_text(*arguments_.most_latency_s) : "throughput") +
            ": " + count_of(std::ssize(tuner.trials()), "trial") + ".",
        "Machine: " + machine_json(arguments_.run.devices).value("cpu", std::string("unknown CPU")) + ", " +
            count_of(static_cast<std::int64_t>(std::ceil(available_cores())), "core") +
            (arguments_.run.devices.lanes_wait_for_gpu() ? ", " + arguments_.run.devices.name : "") + "."};
    if (&chosen == &defaults) {
      summary.push_back(
          pairs.empty() ? "The defaults are the fastest of all trials."
                        : format("The defaults stay: the best other trial was %.2f times as fast in pairs.", median));
    } else if (!ratios.empty()) {
      summary.push_back(format("%.2f times as fast as the defaults: median of %zu pairs, %.2f to %.2f.", median,
                               ratios.size(), ratios.front(), ratios.back()));
    }
    std::vector<TunedValue> values = tuned_values(tuner, chosen);
    for (TunedValue& value : values) {
      if (value.option != "device.precision") continue;
      if (const auto it = agreements_.find(value.value); it != agreements_.end())
        value.reason += "; " + it->second.text();
    }
    write_recipe(values, summary);
    remember(values, summary);
    write_json(tuner, pairs, values);
  }

  void write_recipe(const std::vector<TunedValue>& values, const std::vector<std::string>& summary) const {
    Settings settings = arguments_.run.settings;
    for (const TunedValue& value : values) settings.set(value.option, {value.value}, "tune: " + value.reason);
    std::string text;
    for (const std::string& line : summary) text += "# " + line + "\n";
    text +=
        "# The comment of a tuned value gives its rate and those of the values next to it, with all others "
        "unchanged.\n#\n"
        "#   millrace run " +
        display_name(arguments_.output) + " --output out/\n";
    write_result_file(arguments_.output, text + settings.print());
    for (const std::string& line : summary) std::printf("%s\n", display_name(line).c_str());
    for (const TunedValue& value : values)
      std::printf("  %-18s %-12s %s\n", value.option.c_str(), value.value.c_str(), display_name(value.reason).c_str());
    std::printf("recipe: %s\n", display_name(arguments_.output).c_str());
    std::fflush(stdout);
  }

  /// Everything that may change which values are best.
  [[nodiscard]] Json key() const {
    const Devices& devices = arguments_.run.devices;
    Json key{{"machine", machine_json(devices)}, {"tool", tool}};
    for (const auto& [folder, package] : checked_.packages) key["packages"].push_back(package->id());
    Settings settings = arguments_.run.settings;
    for (const char* option : {"input.paths", "output.folder"}) settings.set(option, {""}, "tune");
    key["settings"] = settings.print();
    key["latency_s"] = arguments_.most_latency_s ? Json(*arguments_.most_latency_s) : Json();
    return key;
  }
  [[nodiscard]] std::string memory_file() const {
    const std::string folder = user_state_folder();
    return folder.empty() ? "" : folder + "/tuned/" + sha256_hex(key().dump()).substr(0, 16) + ".json";
  }
  void remember(const std::vector<TunedValue>& values, const std::vector<std::string>& summary) const {
    const std::string file = memory_file();
    if (file.empty()) return;
    Json known{{"key", key()}, {"day", utc_day()}, {"summary", summary}};
    for (const TunedValue& value : values)
      known["values"].push_back({{"option", value.option}, {"value", value.value}, {"reason", value.reason}});
    try {
      fs::create_directories(fs::path(file).parent_path());
      write_result_file(file, known.dump(1) + "\n");
    } catch (const std::exception&) {  // the next tuning then measures again
    }
  }

  void write_json(const Tuner& tuner, const std::vector<TunePair>& pairs, const std::vector<TunedValue>& values) const {
    if (arguments_.json.empty()) return;
    Json json{{"schema", 1},
              {"machine", machine_json(arguments_.run.devices)},
              {"latency_s", arguments_.most_latency_s ? Json(*arguments_.most_latency_s) : Json()},
              {"trials", Json::array()},
              {"pairs", Json::array()},
              {"values", Json::array()}};
    for (const Trial& trial : tuner.trials()) {
      Json one{{"fits", trial.fits},
               {"usable", trial.usable},
               {"pictures_per_s", trial.fits ? Json(trial.frames_per_s) : Json()},
               {"latency_p95_s", trial.fits ? Json(trial.latency_s) : Json()}};
      for (const auto& [option, value] : values_of(tuner, trial.point)) one["settings"][option] = value;
      json["trials"].push_back(std::move(one));
    }
    for (const TunePair& pair : pairs)
      json["pairs"].push_back(
          {{"defaults", pair.defaults}, {"tuned", pair.best}, {"ratio", pair.best / pair.defaults}});
    for (const TunedValue& value : values)
      json["values"].push_back({{"option", value.option}, {"value", value.value}, {"reason", value.reason}});
    write_result_file(arguments_.json, json.dump(2) + "\n");
  }

  const TuneArguments& arguments_;
  const Config& config_;
  const CheckedRun checked_;
  StopSignals* const signals_;
  const TemporaryFolder folder_;
  TrialRunner trials_;
  std::map<std::string, Agreement> agreements_;  // by precision
};

}  // namespace

ExitCode tune_command(const TuneArguments& arguments, const Config& config, StopSignals* signals) {
  RunArguments dry = arguments.run;
  dry.dry_run = true;  // trials open LibTorch, this process does not
  CheckedRun checked = check_run(dry, config, {});
  if (std::ranges::find(checked.spec.inputs, "-") != checked.spec.inputs.end())
    throw UsageError(
        "`millrace tune` reads the input more than once, so it cannot read names from stdin: write them to a list "
        "(.txt) and "
        "name it with --input");
  for (const auto& note : checked.notes) say(note);
  std::stop_source stop;
  if (signals != nullptr) signals->on_stop([&stop](int /*signal*/) { stop.request_stop(); });
  DryRun input;
  try {
    input = dry_run(checked.spec, 0, {}, stop.get_token());
  } catch (...) {
    if (signals != nullptr) signals->on_stop({});  // it would refer to `stop`
    throw;
  }
  if (signals != nullptr) signals->on_stop({});
  if (stop.stop_requested()) return signals->received() == SIGTERM ? ExitCode::terminated : ExitCode::interrupted;
  if (input.items == 0) throw InputError(input.nothing_found);
  Tuning tuning(arguments, config, std::move(checked), signals);
  if (tuning.recall()) return ExitCode::ok;
  return tuning.run(input.items);
}

}  // namespace millrace
