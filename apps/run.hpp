#pragma once

#include "apps/command_line.hpp"
#include "apps/exit_code.hpp"
#include "models/engine.hpp"
#include "run/variants.hpp"

namespace millrace {

class StopSignals;
struct Config;

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
