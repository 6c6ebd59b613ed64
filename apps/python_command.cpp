#include "apps/python_command.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "models/engines/threads.hpp"
#include "models/package.hpp"
#include "run/builtin.hpp"

namespace millrace {
namespace {

// Other allocators give large blocks back to the system, and models then take twice as long.
constexpr const char* allocator = "/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4";

std::string find_interpreter() {
  const char* const named = std::getenv("MILLRACE_PYTHON");
  std::string interpreter = named != nullptr && *named != 0 ? named : MILLRACE_PYTHON_SET "/bin/python";
  if (access(interpreter.c_str(), X_OK) == 0) return interpreter;
  const std::string setup = find_shared("tools", "tools", "setup.sh");
  throw PackageError("'" + interpreter + "' cannot be run, and this command needs the Python set (5.7 GB); " +
                     (setup.empty() ? "install it with `tools/setup.sh python` in the sources"
                                    : "install it with `" + setup + "/setup.sh python`"));
}

}  // namespace

void run_python(const std::string& script, const std::vector<std::string>& arguments) {
  const std::string folder = find_shared("models/export", "models/export", script);
  if (folder.empty())
    throw PackageError(script + " is missing, in the installation and in the sources; run `make install` again");
  const std::string interpreter = find_interpreter();
  std::error_code error;
  std::vector<EnvironmentSetting> settings{
      // While other programs run, teams that spin take several times as long.
      {"OMP_WAIT_POLICY", "passive", true},
      {"PYTHONDONTWRITEBYTECODE", "1"},
      // The user's settings are for another Python.
      {"PYTHONPATH", ""},
      {"PYTHONHOME", ""},
      {"MILLRACE_PROGRAM", std::filesystem::read_symlink("/proc/self/exe", error).string()},
  };
  if (access(allocator, R_OK) == 0) settings.push_back({"LD_PRELOAD", allocator, true});
  set_environment(settings);
  std::vector<std::string> words{interpreter, folder + "/" + script};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execv(interpreter.c_str(), pointers.data());
  throw PackageError("'" + interpreter + "' cannot be run: " + std::generic_category().message(errno));
}

}  // namespace millrace
