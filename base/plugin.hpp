#pragma once

#include <stdexcept>
#include <string>

namespace millrace {

/// A plug-in or another part of the installation is missing, cannot be loaded or belongs to another build.
/// The program then ends with exit code 5.
struct PluginError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Returns the path of a plug-in, or an empty string if the file does not exist.
/// If MILLRACE_PLUGIN_DIR is set, the plug-in must be in that folder.
/// Otherwise it is in the folder of the program or in ../lib/millrace, relative to that folder.
std::string find_plugin(const std::string& file_name);

/// Texts about one plug-in, for the messages of open_plugin().
struct PluginWords {
  std::string task;    ///< the task of the plug-in, e.g. "runs models"
  std::string advice;  ///< what to do if it does not load
};

/// Loads a plug-in for the rest of the process and returns the address of its symbol. Throws PluginError.
/// Further calls cost next to nothing.
/// Other libraries cannot use the symbols of the plug-in and its libraries.
/// Only the plug-in itself can change that, as the one with LibTorch does for a GPU.
void* open_plugin(const std::string& file_name, const char* symbol, const PluginWords& words);

/// The path of a library of this process whose path contains `stem`; empty if none is loaded.
std::string loaded_library(const std::string& stem);

}  // namespace millrace
