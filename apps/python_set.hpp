#pragma once

#include <string>
#include <vector>

namespace millrace {

/// Replaces this process by the interpreter of the Python set, which runs a script of models/export.
/// Exit code and signals are then those of the script. MILLRACE_PYTHON names another interpreter.
/// Throws PluginError, which names the command that installs the set, if script or interpreter do not exist.
[[noreturn]] void run_in_python_set(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace millrace
