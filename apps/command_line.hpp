#pragma once

#include <string>
#include <vector>

#include "run/devices.hpp"
#include "run/settings.hpp"

namespace millrace {

/// `millrace run` as the user typed it.
struct RunArguments {
  Settings settings;
  bool print_config = false;    ///< show the settings and end
  bool dry_run = false;         ///< scan and show what would be done, write nothing
  bool quiet = false;           ///< neither progress nor table
  bool builtin_models = false;  ///< the settings named no model: the built-in ones stand in them now
  bool add_new = false;         ///< append what is new in the input to a finished plan
  Devices devices;              ///< what device.kind names here
};

/// Reads recipe and options; the command line overrides the recipe. Throws UsageError.
RunArguments parse_run(const std::vector<std::string>& arguments);

/// The text of `millrace run --help`.
std::string run_help();

}  // namespace millrace
