#pragma once

#include <string>
#include <vector>

#include "apps/command_line.hpp"
#include "apps/exit_code.hpp"
#include "run/profile.hpp"
#include "run/variants.hpp"

namespace millrace {

class StopSignals;

/// `millrace profile` as the user typed it.
struct ProfileArguments {
  RunArguments run;
  std::vector<int> batches{1, 2, 4, 8}, boxes{1, 4, 16, 64};  ///< ascending
  bool compare_precisions = false, compare_engines = false, compare_layouts = false, compare_graphs = false;
  [[nodiscard]] bool compares() const {
    return compare_precisions || compare_engines || compare_layouts || compare_graphs;
  }
  std::string json, csv, plot;  ///< files; empty: none
  double seconds = 1;           ///< for each size and combination
};

/// Reads the options of `millrace profile`, and with parse_run() those of `millrace run`.
/// Throws UsageError, also for options of `millrace run` that have no effect here, and for files in missing folders.
ProfileArguments parse_profile(const std::vector<std::string>& arguments);

/// The text of `millrace profile --help`.
std::string profile_help();

/// The combinations that --compare names, still without packages. The first is that of a run without --compare,
/// or the first that exists on these devices. Sets the CPU level of `devices` so that all of them can run.
/// Throws UsageError.
std::vector<ProfileCombination> combinations_of(const ProfileArguments& arguments, Devices& devices);

/// Executes `millrace profile`. Tables go to stdout, notes to stderr, and the figures to the files that the user named.
/// A stop by `signals` ends it with the figures so far. `signals` may be null.
/// Throws the errors that exit_code_of() knows.
ExitCode profile_command(const ProfileArguments& arguments, std::vector<ProfileCombination> combinations,
                         const EngineFactory& factory, const VariantOpener& open_variant, StopSignals* signals);

}  // namespace millrace
