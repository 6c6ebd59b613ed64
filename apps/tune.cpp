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
#include <set>
#include <stdexcept>
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
#include "base/json.hpp"
#include "base/text.hpp"
#include "io/files/files.hpp"
#include "io/files/json_writer.hpp"
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
  return seconds < 1 ? format("%.3g ms", 1000 * seconds) : format("%.2f s", seconds);
}

/// 0 without values.
double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return (values[(values.size() - 1) / 2] + values[values.size() / 2]) / 2;
}

std::string utc_day() {
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  std::array<char, 16> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts)};
}

/// The precisions that these devices have, the one of the settings first. Two names for the same are one.
std::vector<std::string> precisions_of(const Settings& settings, const Config& config, const Packages& packages,
                                       const Devices& devices) {
  std::vector<std::string> all{settings.text("device.precision")};
  std::set<std::string> known{find_precisions(config.device.precision, devices).name(packages)};
  for (const char* precision : {"segment=bf16", "bf16", "fp16"}) {
    try {
      Devices copy = devices;
      copy.cpu_level.clear();
      Settings changed = settings;
      changed.set("device.precision", {precision}, "tune");
      Config other = parse_config(changed);
      other.output.folder.clear();
      use_cpu_level(other, copy);
      if (known.insert(find_precisions(precision, copy).name(packages)).second) all.emplace_back(precision);
    } catch (const std::exception&) {  // these devices do not have it
    }
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

/// Throws UsageError for a value that YAML cannot hold.
void check_text(const Settings& settings) {
  for (const auto& [group, options] : settings.all_options()) {
    for (const OptionInfo& option : options) {
      const std::string key = group + "." + option.name;
      for (const std::string& value : settings.written(key)) {
        if (!is_utf8(value))
          throw UsageError(key + " is '" + display_name(value) +
                           "', which is not UTF-8, so a recipe cannot hold it; rename the file or folder");
      }
    }
  }
}

/// One `millrace tune`.
class Tuning {
 public:
  Tuning(const TuneArguments& arguments, const Config& config, CheckedRun checked, StopSignals* signals)
      : arguments_(arguments),
        config_(config),
        checked_(std::move(checked)),
        signals_(signals),
        most_lanes_(most_lanes(config, checked_.packages, arguments.run.devices)),
        usual_(resolve_for(config, "", arguments.run.devices, most_lanes_)),
        folder_(existing_folder(fs::absolute(arguments.output).parent_path().string()), "tune"),
        trials_(arguments.run.settings, usual_, folder_.path(), signals) {}

  ExitCode run(std::int64_t pictures) {
    const Devices& devices = arguments_.run.devices;
    const std::int64_t frames = usual_.graph.admission_items;
    const std::int64_t fewest = std::min(fillings * frames, largest_sample);
    // The first run shows how many pictures take the wanted time.
    trials_.use_sample(plan_sample(pictures, fewest));
    const TrialRun pilot = trials_.run({}, "pilot");
    if (stopped()) return stop_code();
    require(pilot);
    const auto wanted = static_cast<std::int64_t>(std::ceil(pilot.pictures_per_s * arguments_.seconds));
    // A third more, since the sample may have fewer than its plan asks for.
    const SamplePlan sample = plan_sample(pictures, std::clamp(wanted, fewest, largest_sample) * 4 / 3);
    trials_.use_sample(sample);
    // Brings the files into the system's cache. Otherwise the first trial would be slower than the others.
    const TrialRun cached = trials_.run({}, "pilot");
    if (stopped()) return stop_code();
    require(cached);
    long_enough_ = pictures >= fewest && cached.recording;
    if (!long_enough_)
      say("trials with " + count_of(sample.pictures, "picture") +
          " are too short to learn from; name more pictures, or a higher --seconds");
    const int cores = static_cast<int>(std::ceil(available_cores()));
    const TuneKnobs knobs = knobs_for(arguments_.run.settings, usual_, devices, !checked_.packages.empty(), cores,
                                      most_lanes_, static_cast<int>(std::max(sample.pictures / fillings, frames)),
                                      precisions_of(arguments_.run.settings, config_, checked_.packages, devices));
    if (knobs.knobs.empty())
      throw UsageError("the options that are not set have only one possible value here; leave out others as well");
    show_head(knobs, sample.pictures, pilot.pictures_per_s);
    Tuner tuner(knobs.knobs, knobs.defaults, arguments_.most_latency_s,
                [&](const TunerPoint& point) { return allowed(knobs.knobs, point, sample.pictures); });
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
    if (arguments_.again || !arguments_.json.empty() || file.empty()) return false;
    std::vector<TunedValue> values;
    std::vector<std::string> summary;
    std::string day;
    try {
      const Json known = Json::parse(read_text_file(file, largest_file));
      if (known.at("key") != key()) return false;
      for (const Json& value : known.at("values"))
        values.push_back({value.at("option"), value.at("value"), value.at("reason")});
      summary = known.at("summary").get<std::vector<std::string>>();
      day = known.at("day");
    } catch (const std::exception&) {  // damaged or not readable, so it is measured again
      return false;
    }
    write_recipe(values, summary);
    std::printf("these models were tuned on this machine on %s; --again measures again\n", day.c_str());
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

  /// The limits of the run must fit together, and each lane must have two batches of the pictures.
  [[nodiscard]] bool allowed(const std::vector<Knob>& knobs, const TunerPoint& point, std::int64_t pictures) const {
    GraphOptions options = usual_.graph;
    for (std::size_t i = 0; i < knobs.size(); ++i) {
      const int value = std::atoi(knobs[i].values[point[i]].c_str());
      if (knobs[i].option == "batch.size") options.max_batch = value;
      if (knobs[i].option == "gate.frames") options.admission_items = value;
      if (knobs[i].option == "threads.lanes") options.lanes = value;
    }
    // Without a value of the user, it grows with the batch.
    if (config_.gate.memory == 0) options.byte_budget = std::int64_t{2} * options.max_batch * options.slab_bytes;
    try {
      check(options);
    } catch (const std::invalid_argument&) {
      return false;
    }
    return std::int64_t{2} * options.max_batch * options.lanes <= pictures;
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
    const bool fits = outcome.ok || !outcome.ran_out_of_memory();
    Trial trial{point, fits, outcome.ok, 0, outcome.latency_s, outcome.recording};
    if (outcome.ok) trial.frames_per_s = outcome.pictures_per_s;
    if (stopped()) return trial;
    if (first) require(outcome);
    std::string note = first ? "defaults" : "";
    if (!outcome.ok) {
      note = fits ? "failed: " + outcome.why() : "out of memory";
    } else if (!first && precision_of(tuner, point) != precision_of(tuner, tuner.trials().front().point)) {
      const Agreement it = agreement(trials_.output("defaults"), trials_.output("trial"));
      agreements_[point] = it;
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
    line += trial.frames_per_s > 0 ? format("  %10.2f  %11s", trial.frames_per_s, time_text(trial.latency_s).c_str())
                                   : format("  %10s  %11s", "-", "-");
    std::printf("%s%s\n", line.c_str(), note.empty() ? "" : ("  " + display_name(note)).c_str());
    std::fflush(stdout);
  }

  static double lowest_latency(const Tuner& tuner) {
    double lowest = 0;
    for (const Trial& trial : tuner.trials()) {
      if (trial.usable && trial.frames_per_s > 0 && (lowest == 0 || trial.latency_s < lowest)) lowest = trial.latency_s;
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
        if (!outcome.ok) {
          say("a run of pair " + std::to_string(i + 1) + " failed, so the pairs end here: " + outcome.why());
          return pairs;
        }
        (of_defaults ? pair.defaults : pair.best) = outcome.pictures_per_s;
        if (!of_defaults) pair.latency_s = outcome.latency_s;
      }
      pairs.push_back(pair);
      std::printf("pair %d: defaults %.2f, tuned %.2f pictures/s, %.2f times as fast\n", i + 1, pair.defaults,
                  pair.best, pair.best / pair.defaults);
      std::fflush(stdout);
    }
    return pairs;
  }

  void finish(Tuner& tuner, const Trial& best, const std::vector<TunePair>& pairs) {
    std::vector<double> ratios, latencies;
    for (const TunePair& pair : pairs) {
      ratios.push_back(pair.best / pair.defaults);
      latencies.push_back(pair.latency_s);
    }
    const double median = median_of(ratios);
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
    const auto [slowest, fastest] = std::ranges::minmax_element(ratios);
    if (!long_enough_) {
      summary.emplace_back("The trials were too short to learn from.");
    } else if (&best == &defaults) {
      summary.emplace_back("The defaults are the fastest of all trials.");
    } else if (&chosen == &defaults) {
      summary.push_back(format("The defaults stay: the best other trial was %.2f times as fast in pairs.", median));
    } else if (ratios.empty()) {
      summary.push_back(format("%.2f times as fast as the defaults in one trial. No pairs have confirmed it.",
                               best.frames_per_s / defaults.frames_per_s));
    } else {
      summary.push_back(format("%.2f times as fast as the defaults: median of %zu pairs, %.2f to %.2f.", median,
                               ratios.size(), *slowest, *fastest));
    }
    if (arguments_.most_latency_s && median_of(latencies) > *arguments_.most_latency_s)
      summary.push_back("In the pairs, the latency was longer: " + time_text(median_of(latencies)) + ".");
    std::vector<TunedValue> values = tuned_values(tuner, chosen);
    for (TunedValue& value : values) {
      if (value.option != "device.precision") continue;
      if (const auto it = agreements_.find(chosen.point); it != agreements_.end())
        value.reason += "; " + it->second.text();
    }
    write_recipe(values, summary);
    if (long_enough_) remember(values, summary);
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
    key["effort"] = {arguments_.trials, arguments_.pairs, arguments_.seconds};
    key["latency_s"] = arguments_.most_latency_s ? Json(*arguments_.most_latency_s) : Json();
    return key;
  }
  [[nodiscard]] std::string memory_file() const {
    const std::string folder = user_state_folder();
    return folder.empty()
               ? ""
               : folder + "/tuned/" +
                     sha256_hex(key().dump(-1, ' ', false, Json::error_handler_t::replace)).substr(0, 16) + ".json";
  }
  void remember(const std::vector<TunedValue>& values, const std::vector<std::string>& summary) const {
    const std::string file = memory_file();
    if (file.empty()) return;
    Json known{{"key", key()}, {"day", utc_day()}, {"summary", summary}};
    for (const TunedValue& value : values)
      known["values"].push_back({{"option", value.option}, {"value", value.value}, {"reason", value.reason}});
    try {
      fs::create_directories(fs::path(file).parent_path());
      write_result_file(file, known.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
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
               {"pictures_per_s", trial.frames_per_s > 0 ? Json(trial.frames_per_s) : Json()},
               {"latency_p95_s", trial.frames_per_s > 0 ? Json(trial.latency_s) : Json()}};
      for (const auto& [option, value] : values_of(tuner, trial.point)) one["settings"][option] = value;
      json["trials"].push_back(std::move(one));
    }
    for (const TunePair& pair : pairs)
      json["pairs"].push_back({{"defaults", pair.defaults},
                               {"tuned", pair.best},
                               {"tuned_latency_p95_s", pair.latency_s},
                               {"ratio", pair.best / pair.defaults}});
    for (const TunedValue& value : values)
      json["values"].push_back({{"option", value.option}, {"value", value.value}, {"reason", value.reason}});
    write_result_file(arguments_.json, json.dump(2) + "\n");
  }

  const TuneArguments& arguments_;
  const Config& config_;
  const CheckedRun checked_;
  StopSignals* const signals_;
  const int most_lanes_;
  const ResolvedConfig usual_;  // without changes
  const TemporaryFolder folder_;
  TrialRunner trials_;
  std::map<TunerPoint, Agreement> agreements_;  // of trials in another precision
  bool long_enough_ = false;                    // the trials
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
  if (!any_free(arguments.run.settings, !checked.packages.empty()))
    throw UsageError("every option that `millrace tune` could change is set; leave some of them out");
  check_text(arguments.run.settings);
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
