#include "apps/child_run.hpp"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <system_error>

#include "apps/signals.hpp"
#include "io/files/files.hpp"

namespace millrace {
namespace {

constexpr std::size_t most_messages = 4096;
constexpr std::int64_t largest_messages = 16 << 20;
constexpr int not_started = 127;

// After fork(), only calls that are safe in a signal handler may be made.
[[noreturn]] void become_program(char* const* argv, int messages, int nothing, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(not_started);  // the parent ended before the call above
  // A Ctrl-C in the terminal must reach the child once: from this process.
  ::setpgid(0, 0);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(nothing, STDOUT_FILENO);
  ::dup2(messages, STDERR_FILENO);
  ::execv("/proc/self/exe", argv);
  ::_exit(not_started);
}

std::string end_of(const std::string& file) {
  try {
    const std::string text = read_text_file(file, largest_messages);
    return text.substr(text.size() - std::min(text.size(), most_messages));
  } catch (const std::exception&) {  // the messages only help to understand a failure
    return {};
  }
}

}  // namespace

ChildEnd run_child(const std::vector<std::string>& arguments, const std::string& messages_file, StopSignals* signals) {
  std::vector<std::string> words{"millrace"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const File messages(messages_file, O_WRONLY | O_CREAT | O_TRUNC);
  const File nothing("/dev/null", O_RDWR);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw std::system_error(errno, std::system_category(), "a trial could not be started (fork)");
  if (child == 0) become_program(argv.data(), messages.descriptor(), nothing.descriptor(), parent);
  if (signals != nullptr) signals->on_stop([child](int /*signal*/) { ::kill(child, SIGTERM); });
  // The number of the child stays reserved until waitpid(), so a late signal reaches no other process.
  siginfo_t ended{};
  while (::waitid(P_PID, static_cast<id_t>(child), &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR) {
  }
  if (signals != nullptr) signals->on_stop({});
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  ChildEnd end;
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
  end.messages = end_of(messages_file);
  return end;
}

}  // namespace millrace
