#include "apps/python_set.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/plugin.hpp"
#include "models/engines/threads.hpp"
#include "run/builtin.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

/// One word for a shell.
std::string shell_word(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return c < 128 && (std::isalnum(c) != 0 || std::strchr("_./+-", c) != nullptr);
  });
  if (plain) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

/// The interpreter of the Python set. Throws PluginError with the command that installs the set if it is missing.
std::string interpreter_of_set() {
  // The build found this folder with tools/setup.sh. Its name is a hash of the pins, and its parent is MILLRACE_DEPS.
  const fs::path built = MILLRACE_DEPS_DIR;
  const char* own = std::getenv("MILLRACE_DEPS");
  const fs::path deps = own != nullptr && *own != '\0' ? fs::absolute(own) : built.parent_path();
  const fs::path set = deps / built.filename() / "python";
  std::error_code error;
  // tools/setup.sh makes this marker when the set is complete.
  if (fs::exists(set / ".complete", error)) return (set / "bin" / "python").string();
  const std::string setup = find_data("tools", "tools", "setup.sh");
  const std::string missing = "the exporters need the Python set, which is not in '" + set.string() + "'; ";
  if (setup.empty()) throw PluginError(missing + "run 'make install' again, which brings the script that installs it");
  throw PluginError(missing + "install it (5.7 GB) with this command, then try again:\n  MILLRACE_DEPS=" +
                    shell_word(deps.string()) + " " + shell_word(setup + "/setup.sh") + " python");
}

// Removes the caller's settings of Python. With a fixed seed of hashes, an export of the same file writes the same bytes:
// TorchScript writes the constants of a module in the order of a set.
void replace_python_settings() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view setting = *entry;
    if (setting.starts_with("PYTHON")) names.emplace_back(setting.substr(0, setting.find('=')));
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
  set_environment({{"PYTHONHASHSEED", "0"}});
}

}  // namespace

void run_in_python_set(const std::string& script, const std::vector<std::string>& arguments) {
  const std::string folder = find_data("export", "models/export", script);
  if (folder.empty())
    throw PluginError("the exporters are not in share/millrace/export of the installation; run 'make install' again");
  const char* own = std::getenv("MILLRACE_PYTHON");
  const std::string python = own != nullptr && *own != '\0' ? own : interpreter_of_set();

  // -s: the caller's Python packages have no effect. -B: nothing is written next to the scripts.
  std::vector<std::string> words{python, "-s", "-B", folder + "/" + script};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  replace_python_settings();
  // `millrace compile` and `millrace verify` call the program.
  set_environment({{"MILLRACE_PROGRAM", fs::read_symlink("/proc/self/exe").string()}});
  // While other programs run, a spinning OpenMP team takes several times as long.
  set_environment({{"OMP_WAIT_POLICY", "passive"}});
  // With the default allocator, an export takes twice as long.
  if (const std::string tcmalloc = loaded_library("libtcmalloc"); !tcmalloc.empty()) {
    const char* others = std::getenv("LD_PRELOAD");
    const bool none = others == nullptr || *others == '\0';
    set_environment({{"LD_PRELOAD", none ? tcmalloc : tcmalloc + ":" + others}});
  }
  // The exporters replace this process, so their exit code and signals are those of the command.
  ::execvp(python.c_str(), argv.data());
  throw PluginError("'" + python + "' cannot be started (" + std::strerror(errno) + "); " +
                    (own != nullptr && *own != '\0' ? "MILLRACE_PYTHON names it: correct or unset that variable"
                                                    : "delete the folder of the Python set and try again"));
}

}  // namespace millrace
