#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/commands.hpp"
#include "base/plugin.hpp"
#include "models/engines/threads.hpp"
#include "run/builtin.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// models/export/command_line.py declares these options. tests/apps/model_test.py compares the two lists.
constexpr const char* help =
    "Usage: millrace model WEIGHTS [SEGMENTER] [options]\n"
    "\n"
    "Converts published weights into model packages, compares each package with the original model, and prints the\n"
    "`millrace run` command for them. WEIGHTS is a detector, a segmenter or a classifier. With two files, one is a\n"
    "detector and one a segmenter, in any order. yolov8n.pt becomes yolov8n.pkg, next to the file.\n"
    "\n"
    "  --out FOLDER       folder for the packages; default: that of the weights\n"
    "  --photograph FILE  picture for the comparison with the original; default: one drawn from a seed\n"
    "  --imgsz N | H W    Ultralytics: side of the input, or height and width; default: that of the training\n"
    "  --names FILE       names of the classes, one per line; default: COCO's (YOLOX), ImageNet's (classifier)\n"
    "  --preset V1|V2     classifier: preprocessing of the training; default: that of the file, or V1\n"
    "  --trust            load a pickle that contains more than weights and known classes; it may run commands\n"
    "  --traceback        show the Python traceback of an unexpected error\n"
    "  --help             print this text and exit\n"
    "\n"
    "With two files, --imgsz and --names are for the detector. Put -- before a file whose name begins with a dash.\n"
    "\n"
    "The exporters run in the Python set (5.7 GB); if it is missing, a message shows the command that installs it.\n"
    "MILLRACE_DEPS=FOLDER is the folder of that set, MILLRACE_PYTHON=FILE another interpreter.\n"
    "\n"
    "Exit codes:\n"
    "  0    done\n"
    "  1    a package differs from its original: please report it\n"
    "  2    wrong use\n"
    "  5    a problem with the weights, or the Python set is missing\n"
    "  6    writing failed\n"
    "  130  stopped by Ctrl-C\n"
    "  143  stopped by SIGTERM\n";

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

}  // namespace

ExitCode model_command(const std::vector<std::string>& arguments) {
  if (asks_for_help(arguments)) {
    std::fputs(help, stdout);
    return ExitCode::ok;
  }
  if (arguments.empty())
    throw UsageError("`millrace model` needs a file with weights: `millrace model yolov8n.pt [mobile_sam.pt]`");
  const std::string exporters = find_data("export", "models/export", "model.py");
  if (exporters.empty())
    throw PluginError("the exporters are not in share/millrace/export of the installation; run 'make install' again");
  const char* own = std::getenv("MILLRACE_PYTHON");
  const std::string python = own != nullptr && *own != '\0' ? own : interpreter_of_set();

  // -E and -s: the caller's Python settings and packages have no effect. -B: nothing is written next to the exporters.
  std::vector<std::string> words{python, "-E", "-s", "-B", exporters + "/model.py"};
  words.push_back(fs::read_symlink("/proc/self/exe").string());
  words.push_back(find_data("configs", "configs", "detect.yaml"));
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // While other programs run, a spinning OpenMP team takes several times as long.
  set_environment({{"OMP_WAIT_POLICY", "passive"}});
  // With the default allocator, an export takes twice as long.
  if (const std::string tcmalloc = loaded_library("libtcmalloc"); !tcmalloc.empty())
    set_environment({{"LD_PRELOAD", tcmalloc}});
  // The exporters replace this process, so their exit code and signals are those of the command.
  ::execvp(python.c_str(), argv.data());
  throw PluginError("'" + python + "' cannot be started (" + std::strerror(errno) + "); " +
                    (own != nullptr && *own != '\0' ? "MILLRACE_PYTHON names it: correct or unset that variable"
                                                    : "delete the folder of the Python set and try again"));
}

}  // namespace millrace
