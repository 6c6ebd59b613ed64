#pragma once

#include <string>
#include <vector>

#include "run/devices.hpp"
#include "run/settings.hpp"

namespace millrace {

/// `millrace run` as the user typed it.
struct RunArguments {
  Settings settings;
  bool print_config = false;    ///< print the settings and exit
  bool dry_run = false;         ///< scan, show what a run would do, write nothing
  bool quiet = false;           ///< neither progress nor table
  bool builtin_models = false;  ///< the user named no model, so `settings` now names the built-in ones
  bool add_new = false;         ///< append new pictures of the input to a finished plan
  Devices devices;              ///< the devices of this machine that device.kind names
};

/// Reads recipe and options; the command line overrides the recipe. It fills neither `builtin_models` nor `devices`.
/// Throws UsageError.
RunArguments parse_run(const std::vector<std::string>& arguments);

/// The text of `millrace run --help`.
std::string run_help();

}  // namespace millrace
