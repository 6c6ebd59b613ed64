#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "apps/command_line.hpp"
#include "apps/exit_code.hpp"
#include "pipeline/tuner.hpp"
#include "run/config.hpp"
#include "run/resolve.hpp"

namespace millrace {

class StopSignals;

/// `millrace tune` as the user typed it.
struct TuneArguments {
  RunArguments run;
  std::optional<double> most_latency_s;  ///< --for latency:TIME; empty: throughput
  std::string output;                    ///< the recipe to write
  std::string json;                      ///< file; empty: none
  int trials = 12;
  int pairs = 3;        ///< each is a run with the defaults and one with the best values
  double seconds = 10;  ///< of a trial with the defaults, without loading
  bool again = false;   ///< measure even if values are remembered
};

/// Reads the options of `millrace tune`, and with parse_run() those of `millrace run`. Throws UsageError.
TuneArguments parse_tune(const std::vector<std::string>& arguments);

/// The text of `millrace tune --help`.
std::string tune_help();

/// Executes `millrace tune`: runs samples of the input as child processes, with other values of the options that the user
/// did not set, and writes a recipe with the best values.
/// Throws the errors that exit_code_of() knows.
ExitCode tune_command(const TuneArguments& arguments, const Config& config, StopSignals* signals);

/// The measured rates of the defaults and of the best values, one pair after the other.
struct TunePair {
  double defaults = 0, best = 0;  ///< pictures/s
  double latency_s = 0;           ///< of the best values: 95 % of the pictures took no longer
};

/// A value for the recipe, and why.
struct TunedValue {
  std::string option, value, reason;
};

/// Whether the settings leave an option to `millrace tune`. `has_models` is false for recipes without lanes.
bool any_free(const Settings& settings, bool has_models);

/// The knobs for `settings`: options that the user did not set. `resolved` has the defaults of this run.
/// `most_lanes` is a limit from the memory of the host; `most_frames` limits gate.frames, because a sample must be longer.
/// `defaults` is the point of a run without `millrace tune`.
struct TuneKnobs {
  std::vector<Knob> knobs;
  TunerPoint defaults;
};
TuneKnobs knobs_for(const Settings& settings, const ResolvedConfig& resolved, const Devices& devices, bool has_models,
                    int cores, int most_lanes, int most_frames, const std::vector<std::string>& precisions);

/// A value for each knob with the reason: the rates at the neighbouring values, measured or predicted.
std::vector<TunedValue> tuned_values(Tuner& tuner, const Trial& best);

}  // namespace millrace
