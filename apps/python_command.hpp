#pragma once

#include <string>
#include <vector>

namespace millrace {

/// Replaces this process by the interpreter of the Python set, which runs a script of models/export: share/millrace of
/// the installation, or the sources. MILLRACE_PYTHON names another interpreter.
/// The exit code is that of the script. Throws PackageError if script or interpreter do not exist.
[[noreturn]] void run_python(const std::string& script, const std::vector<std::string>& arguments);

}  // namespace millrace
