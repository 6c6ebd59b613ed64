#pragma once

#include <string>
#include <vector>

#include "apps/exit_code.hpp"

namespace millrace {

/// Whether --help or -h is among the arguments.
bool asks_for_help(const std::vector<std::string>& arguments);

/// `millrace status OUT`: planned, done, failed by reason, who is at it; reads only.
ExitCode status_command(const std::vector<std::string>& arguments);

/// `millrace reduce NAME OUT`: runs a reducer over the finished segments.
ExitCode reduce_command(const std::vector<std::string>& arguments);

/// `millrace inspect PACKAGE`: checks a model package and describes it.
ExitCode inspect_command(const std::vector<std::string>& arguments);

/// `millrace stages`: the table of stages and groups with every option.
ExitCode stages_command(const std::vector<std::string>& arguments);

/// `millrace doctor`: libraries, processor, GPU, codecs; environment (5) when something needed is missing.
ExitCode doctor_command(const std::vector<std::string>& arguments);

}  // namespace millrace
