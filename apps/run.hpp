#pragma once

#include "apps/command_line.hpp"
#include "apps/exit_code.hpp"
#include "models/engine.hpp"

namespace millrace {

class StopSignals;
struct Config;

/// Runs what the user asked for, from plan to report, and prints what it has to say to stderr (results and tables to
/// stdout). Throws what exit_code_of knows; everything that concerns single pictures stands in the segments instead.
/// `config` is what the arguments set; `factory` loads packages: LibTorch's in the program, a fake in tests. `signals`
/// may be null.
ExitCode run(const RunArguments& arguments, const Config& config, const EngineFactory& factory, StopSignals* signals);

}  // namespace millrace
