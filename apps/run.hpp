#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/exit_code.hpp"
#include "io/input/source.hpp"
#include "models/engine.hpp"
#include "run/output_state.hpp"
#include "run/setup.hpp"
#include "run/variants.hpp"

namespace millrace {

class StopSignals;
struct Config;

/// The input and the models of a run, which have passed their checks.
struct CheckedRun {
  SourceSpec spec;
  Packages packages{};
  std::vector<std::string> notes{};  ///< for the user
};

/// Checks arguments, input and packages, and chooses compiled models. It writes nothing.
/// Throws the errors of a run that come before its output folder is made.
CheckedRun check_run(const RunArguments& arguments, const Config& config, const VariantOpener& open_variant);

/// The progress of the existing folder `output`; nothing if it has no plan.
/// Throws the error of a run if the plan does not fit these settings and this input.
std::optional<OutputState> check_output(const RunArguments& arguments, const Config& config, const SourceSpec& spec,
                                        const Packages& packages, const std::string& output);

/// Executes `millrace run`, from plan to report. Messages go to stderr, results and tables to stdout.
///
/// A failed picture is recorded in the segments and does not throw. Other failures throw the errors that
/// exit_code_of() knows.
/// - `config`: the parsed settings of `arguments`.
/// - `factory` loads packages: with LibTorch in the program, a fake in tests.
/// - `signals` may be null: then no signal stops the run.
ExitCode run(const RunArguments& arguments, const Config& config, const EngineFactory& factory,
             const VariantOpener& open_variant, StopSignals* signals);

}  // namespace millrace
