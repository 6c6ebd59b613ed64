#include "apps/signals.hpp"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string>
#include <system_error>
#include <utility>

namespace millrace {
namespace {

constexpr int drain_ms = 20'000;

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

void say(std::string text) {
  // On a terminal the cursor is behind the progress line and ^C.
  text = (::isatty(STDERR_FILENO) != 0 ? "\nmillrace: " : "millrace: ") + text + "\n";
  // Not through stdio: a thread that hangs may hold the lock of stderr.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace

StopSignals::StopSignals(StopTexts texts) : texts_(texts) {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // over ulimit -f, write() then fails with EFBIG, which is reported like other errors
  const sigset_t set = stop_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  wake_ = eventfd(0, EFD_CLOEXEC);
  if (wake_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  thread_ = std::thread([this] { wait(); });
}

StopSignals::~StopSignals() {
  const std::uint64_t one = 1;
  // Without this wake-up, join() below would wait forever.
  while (::write(wake_, &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
  ::close(wake_);
}

void StopSignals::on_stop(std::function<void(int signal)> stop) {
  const std::lock_guard lock(mutex_);
  stop_ = std::move(stop);
  if (stop_ && received_ != 0) stop_(received_);
}

void StopSignals::wait() {
  const sigset_t set = stop_signals();
  const int signals = signalfd(-1, &set, SFD_CLOEXEC);
  if (signals < 0) return;
  std::array<pollfd, 2> watched{pollfd{signals, POLLIN, 0}, pollfd{wake_, POLLIN, 0}};
  for (;;) {
    // Batches in flight have 20 s to finish. Slurm and Kubernetes kill after 30 s.
    const int ready = ::poll(watched.data(), watched.size(), received_ == 0 ? -1 : drain_ms);
    if (ready == 0) {
      say(texts_.late);
      // Destructors would wait for the threads that did not finish.
      ::_exit(128 + received_);
    }
    if (ready < 0) continue;
    if ((watched[1].revents & POLLIN) != 0) break;
    signalfd_siginfo info{};
    if (::read(signals, &info, sizeof info) != sizeof info) continue;
    const int signal = static_cast<int>(info.ssi_signo);
    if (received_ != 0) {
      say(texts_.second);
      ::_exit(128 + signal);
    }
    received_ = signal;
    say(texts_.first);
    const std::lock_guard lock(mutex_);
    // Under the lock: when on_stop({}) returns, no call of `stop` is running.
    if (stop_) stop_(signal);
  }
  ::close(signals);
}

}  // namespace millrace
