#pragma once

#include <string>
#include <vector>

#include "apps/exit_code.hpp"

namespace millrace {

// Each command prints to stdout. `arguments` are those after its name.
// Wrong arguments throw UsageError, other failures throw the errors that exit_code_of() knows.

/// Whether --help or -h is among the arguments.
bool asks_for_help(const std::vector<std::string>& arguments);

/// `millrace status OUT`: items planned, done, left and failed by reason, and which process holds the lock.
/// Reads only. Returns `mismatch` (8) if results are damaged.
ExitCode status_command(const std::vector<std::string>& arguments);

/// `millrace report OUT`: prints the report of an attempt again, or writes it as a page.
ExitCode report_command(const std::vector<std::string>& arguments);

/// `millrace compare FIRST SECOND`: prints how two attempts differ in speed, settings, machine and results.
ExitCode compare_command(const std::vector<std::string>& arguments);

/// `millrace reduce NAME OUT`: runs a reducer over the finished segments.
ExitCode reduce_command(const std::vector<std::string>& arguments);

/// `millrace inspect PACKAGE...`: checks model packages and describes them.
ExitCode inspect_command(const std::vector<std::string>& arguments);

/// `millrace model WEIGHTS...`: replaces this process by the exporters (models/export/model.py) in the Python set.
ExitCode model_command(const std::vector<std::string>& arguments);

/// `millrace stages`: all stages, and all options by group.
ExitCode stages_command(const std::vector<std::string>& arguments);

/// `millrace doctor`: libraries, processor, GPU, codecs. Returns `environment` (5) if something that runs need is
/// missing.
ExitCode doctor_command(const std::vector<std::string>& arguments);

}  // namespace millrace
