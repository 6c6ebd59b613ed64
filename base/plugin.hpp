#pragma once

#include <stdexcept>
#include <string>

namespace millrace {

/// A plug-in of the program that is missing, cannot be loaded or belongs to another build. The program ends with exit
/// code 5.
struct PluginError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Where this plug-in of the program is: in MILLRACE_PLUGIN_DIR if that is set, else beside the program, else in
/// ../lib/millrace from there; empty if it is in none of them.
std::string find_plugin(const std::string& file_name);

/// What open_plugin() says of a plug-in.
struct PluginWords {
  std::string task;    ///< "runs models"
  std::string advice;  ///< where it does not load: what to do
};

/// Opens the plug-in for the rest of the process and returns its symbol; opening it again costs next to nothing. What
/// it brings stays its own: symbols of its libraries serve no other library, unless it says otherwise itself, as
/// LibTorch's does for a GPU. Throws PluginError.
void* open_plugin(const std::string& file_name, const char* symbol, const PluginWords& words);

}  // namespace millrace
