#include "apps/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <deque>
#include <string>
#include <utility>

#include "apps/terminal.hpp"
#include "pipeline/verdict.hpp"

namespace millrace {
namespace {

constexpr std::int64_t window_ns = 10'000'000'000;

std::string time_left(double seconds) {
  std::array<char, 32> text{};
  if (seconds < 100) {
    std::snprintf(text.data(), text.size(), "%.0f s", seconds);
  } else if (seconds < 6000) {
    std::snprintf(text.data(), text.size(), "%.0f min", seconds / 60);
  } else if (seconds < 360000) {
    std::snprintf(text.data(), text.size(), "%.1f h", seconds / 3600);
  } else {
    std::snprintf(text.data(), text.size(), "%.0f days", seconds / 86400);
  }
  return text.data();
}

}  // namespace

ProgressStyle progress_style(bool quiet) {
  if (quiet) return ProgressStyle::none;
  return isatty(STDERR_FILENO) != 0 ? ProgressStyle::line : ProgressStyle::plain;
}

std::string progress_line(const ProgressSample& before, const ProgressSample& now, int columns) {
  const Snapshot window = now.snapshot - before.snapshot;
  const double wall_s = static_cast<double>(window.time_ns) / 1e9;
  const double rate = wall_s > 0 ? static_cast<double>(window.committed) / wall_s : 0;
  std::string text = std::to_string(now.done) + "/" + std::to_string(now.planned) + (now.plan_complete ? "" : "+");
  if (now.snapshot.planned == 0) return text + "  loading";
  std::array<char, 64> number{};
  std::snprintf(number.data(), number.size(), rate < 10 ? "  %.2f/s" : "  %.0f/s", rate);
  text += number.data();
  if (now.plan_complete && rate > 0)
    text += "  " + time_left(static_cast<double>(now.planned - now.done) / rate) + " left";
  if (now.failed > 0) text += "  " + std::to_string(now.failed) + " failed";
  const Verdict verdict = judge(before.snapshot, now.snapshot);
  if (!verdict.stage.empty()) {
    std::snprintf(number.data(), number.size(), " %.0f %%", 100 * verdict.utilisation);
    text += "  busiest: " + verdict.stage + number.data();
  }
  if (columns > 0 && text.size() > static_cast<std::size_t>(columns)) text.resize(static_cast<std::size_t>(columns));
  return text;
}

Progress::Progress(ProgressStyle style, std::function<ProgressSample()> sample)
    : style_(style), sample_(std::move(sample)) {
  if (style_ != ProgressStyle::none) thread_ = std::thread([this] { run(); });
}

Progress::~Progress() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Progress::run() {
  const bool line = style_ == ProgressStyle::line;
  const auto period = line ? std::chrono::milliseconds(500) : std::chrono::milliseconds(10'000);
  std::deque<ProgressSample> samples{sample_()};
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, period, [&] { return ended_; })) {
    ProgressSample now = sample_();
    if (now.snapshot.planned == 0) samples.assign(1, now);  // what was loading is no part of the rate
    while (samples.size() > 1 && now.snapshot.time_ns - samples[1].snapshot.time_ns >= window_ns) samples.pop_front();
    if (line) {
      std::fprintf(stderr, "\r\033[K%s",
                   progress_line(samples.front(), now, terminal_columns(STDERR_FILENO) - 1).c_str());
    } else {
      std::fprintf(stderr, "%s\n", progress_line(samples.front(), now, 0).c_str());
    }
    std::fflush(stderr);
    samples.push_back(std::move(now));
  }
  if (line) std::fputs("\r\033[K", stderr);
}

}  // namespace millrace
