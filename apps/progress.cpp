#include "apps/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "apps/terminal.hpp"
#include "pipeline/verdict.hpp"

namespace millrace {
namespace {

constexpr std::int64_t window_ns = 10'000'000'000;  // rate and utilisation cover this time
constexpr std::int64_t plain_ns = 10'000'000'000;   // from one line of a log to the next
constexpr std::chrono::milliseconds tick(500);
constexpr std::int64_t half_tick_ns = 250'000'000;  // tolerance: samples come a little early or late

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

std::string cut(std::string text, int columns) {
  if (columns > 0 && text.size() > static_cast<std::size_t>(columns)) text.resize(static_cast<std::size_t>(columns));
  return text;
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
  if (now.snapshot.planned == 0) return cut(text + (now.ready ? "  waiting for input" : "  loading"), columns);
  std::array<char, 64> number{};
  std::snprintf(number.data(), number.size(), rate < 10 ? "  %.2f/s" : "  %.0f/s", rate);
  text += number.data();
  if (now.plan_complete && rate > 0)
    text += "  " + time_left(static_cast<double>(now.planned - now.done) / rate) + " left";
  if (now.failed > 0) text += "  " + std::to_string(now.failed) + " failed";
  const Verdict verdict = judge(before.snapshot, now.snapshot);
  if (verdict.kind == Verdict::Kind::input) {
    std::snprintf(number.data(), number.size(), "  waiting for input %.0f %%", 100 * verdict.input);
    text += number.data();
  }
  if (!verdict.stage.empty()) {
    std::snprintf(number.data(), number.size(), " %.0f %%", 100 * verdict.utilisation);
    text += "  busiest: " + verdict.resource + number.data();
    if (verdict.stage != verdict.resource) text += " (" + verdict.stage + ")";
  }
  return cut(std::move(text), columns);
}

std::string ProgressLines::add(ProgressSample now, int columns) {
  const std::int64_t now_ns = now.snapshot.time_ns;
  if (window_.empty()) due_ns_ = now_ns + plain_ns;
  // The rate leaves out the time before the first item: models load, or the input is empty.
  if (window_.empty() || now.snapshot.planned == 0) window_.assign(1, now);
  // The sample before the last 10 s stays, so that a full window covers at least 10 s.
  while (window_.size() > 1 && now_ns - window_[1].snapshot.time_ns >= window_ns) window_.pop_front();
  std::string text;
  if (style_ == ProgressStyle::line) {
    text = "\r\033[K" + progress_line(window_.front(), now, columns);
  } else if (now_ns + half_tick_ns >= due_ns_) {
    text = progress_line(window_.front(), now, columns) + "\n";
    // After a pause, the lines that were missed are left out.
    while (now_ns + half_tick_ns >= due_ns_) due_ns_ += plain_ns;
  }
  window_.push_back(std::move(now));
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
  ProgressLines lines(style_);
  lines.add(sample_(), 0);  // the first window begins now, not after the first tick
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, tick, [&] { return ended_; })) {
    // One column stays free: if a line wraps, \r cannot return to its start.
    const std::string text = lines.add(sample_(), line ? terminal_columns(STDERR_FILENO) - 1 : 0);
    if (text.empty()) continue;
    std::fputs(text.c_str(), stderr);
    std::fflush(stderr);
  }
  if (line) std::fputs("\r\033[K", stderr);
}

}  // namespace millrace
