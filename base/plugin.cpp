#include "base/plugin.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> folders() {
  if (const char* folder = std::getenv("MILLRACE_PLUGIN_DIR"); folder != nullptr && *folder != '\0') return {folder};
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  // No search in the current folder: a plug-in is code that would run.
  if (error) return {};
  return {program.parent_path(), program.parent_path().parent_path() / "lib" / "millrace"};
}

std::string folder_names() {
  std::string text;
  for (const fs::path& folder : folders()) text += (text.empty() ? "in '" : " nor in '") + folder.string() + "'";
  return text.empty() ? "found, because /proc/self/exe, which names the program's folder, cannot be read" : text;
}

}  // namespace

std::string find_plugin(const std::string& file_name) {
  std::error_code error;
  for (const fs::path& folder : folders()) {
    if (fs::exists(folder / file_name, error)) return (folder / file_name).string();
  }
  return {};
}

void* open_plugin(const std::string& file_name, const char* symbol, const PluginWords& words) {
  const std::string path = find_plugin(file_name);
  if (path.empty()) {
    throw PluginError(file_name + ", which " + words.task + ", is not " + folder_names() +
                      "; run 'make install' again, or set MILLRACE_PLUGIN_DIR to its folder");
  }
  // If the library is already open, dlopen returns at once, so this function keeps nothing between calls.
  // No plug-in is unloaded, because its libraries have threads.
  // RTLD_LOCAL: two plug-ins bring a BLAS, and LibTorch would otherwise call the functions of the other one.
  // RTLD_NOW: a missing function is an error here, and not in the middle of a run.
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void* found = library == nullptr ? nullptr : dlsym(library, symbol);
  if (found != nullptr) return found;
  const char* error = dlerror();
  throw PluginError("'" + path + "', which " + words.task + ", does not load (" +
                    (error == nullptr ? "no reason given" : error) + "); " + words.advice);
}

std::string loaded_library(const std::string& stem) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const auto slash = line.find('/');
    if (slash != std::string::npos && line.find(stem, slash) != std::string::npos) return line.substr(slash);
  }
  return "";
}

}  // namespace millrace
