#include "apps/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <utility>

#include "apps/terminal.hpp"
#include "base/json.hpp"

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

/// Windows of the pictures that are computed now, and of those to come. These count with the mean of the others.
double windows_left(const ProgressSample& now) {
  const WindowProgress& windows = now.windows;
  const std::int64_t resumed = now.done - now.snapshot.committed;
  // Pictures that fail early never come to the windows, and those whose results are still written are not done.
  const std::int64_t to_come = std::max<std::int64_t>(
      std::min(now.planned - resumed - windows.pictures, now.planned - now.done - windows.open), 0);
  const double mean = static_cast<double>(windows.done + windows.left) / static_cast<double>(windows.pictures);
  return static_cast<double>(windows.left) + static_cast<double>(to_come) * mean;
}

}  // namespace

ProgressStyle progress_style(bool quiet) {
  if (quiet) return ProgressStyle::none;
  return isatty(STDERR_FILENO) != 0 ? ProgressStyle::line : ProgressStyle::plain;
}

ProgressFigures figures_of(const ProgressSample& before, const ProgressSample& now) {
  ProgressFigures figures;
  const Snapshot window = now.snapshot - before.snapshot;
  const double wall_s = static_cast<double>(window.time_ns) / 1e9;
  if (wall_s > 0) figures.pictures_per_s = static_cast<double>(window.committed) / wall_s;
  if (now.windows.pictures > 0)
    figures.windows_per_s = wall_s > 0 ? static_cast<double>(now.windows.done - before.windows.done) / wall_s : 0;
  const double rate = figures.windows_per_s.value_or(figures.pictures_per_s);
  if (now.plan_complete && rate > 0)
    figures.left_s = (figures.windows_per_s ? windows_left(now) : static_cast<double>(now.planned - now.done)) / rate;
  figures.verdict = judge(before.snapshot, now.snapshot);
  return figures;
}

nlohmann::json to_json(const ProgressSample& before, const ProgressSample& now) {
  const ProgressFigures figures = figures_of(before, now);
  const auto named = [](const std::string& name) { return name.empty() ? nlohmann::json() : nlohmann::json(name); };
  const auto known = [&](std::int64_t windows) {
    return figures.windows_per_s ? nlohmann::json(windows) : nlohmann::json();
  };
  return {{"done", now.done},
          {"failed", now.failed},
          {"planned", now.planned},
          {"plan_complete", now.plan_complete},
          {"ready", now.ready},
          {"in_flight", now.snapshot.in_flight},
          {"pictures_per_s", now.snapshot.planned > 0 ? nlohmann::json(figures.pictures_per_s) : nlohmann::json()},
          {"windows_in_work", known(now.windows.in_work)},
          {"windows_done", known(now.windows.in_work - now.windows.left)},
          {"windows_per_s", figures.windows_per_s ? nlohmann::json(*figures.windows_per_s) : nlohmann::json()},
          {"left_s", figures.left_s ? nlohmann::json(*figures.left_s) : nlohmann::json()},
          {"busiest", named(figures.verdict.stage)}};
}

const ProgressSample& ProgressWindow::add(ProgressSample now) {
  const std::int64_t now_ns = now.snapshot.time_ns;
  // The rate leaves out the time before the first item: models load, or the input is empty.
  if (now.snapshot.planned == 0) samples_.clear();
  // The sample before the last 10 s stays, so that a full window covers at least 10 s.
  while (samples_.size() > 1 && now_ns - samples_[1].snapshot.time_ns >= window_ns) samples_.pop_front();
  samples_.push_back(std::move(now));
  return samples_.front();
}

std::string progress_line(const ProgressSample& before, const ProgressSample& now, int columns) {
  const ProgressFigures figures = figures_of(before, now);
  std::string text = std::to_string(now.done) + "/" + std::to_string(now.planned) + (now.plan_complete ? "" : "+");
  if (now.snapshot.planned == 0) return cut(text + (now.ready ? "  waiting for input" : "  loading"), columns);
  std::array<char, 64> number{};
  const auto add_rate = [&](double rate) {
    std::snprintf(number.data(), number.size(), rate < 10 ? "  %.2f/s" : "  %.0f/s", rate);
    text += number.data();
  };
  add_rate(figures.pictures_per_s);
  if (now.windows.in_work > 0) {
    text += "  windows " + std::to_string(now.windows.in_work - now.windows.left) + "/" +
            std::to_string(now.windows.in_work);
    add_rate(figures.windows_per_s.value_or(0));
  }
  if (figures.left_s) text += "  " + time_left(*figures.left_s) + " left";
  if (now.failed > 0) text += "  " + std::to_string(now.failed) + " failed";
  const Verdict& verdict = figures.verdict;
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
  const ProgressSample& first = window_.add(now);
  if (style_ == ProgressStyle::line) return "\r\033[K" + progress_line(first, now, columns);
  const std::int64_t now_ns = now.snapshot.time_ns;
  if (!due_ns_) due_ns_ = now_ns + plain_ns;
  if (now_ns + half_tick_ns < *due_ns_) return {};
  // After a pause, the lines that were missed are left out.
  while (now_ns + half_tick_ns >= *due_ns_) *due_ns_ += plain_ns;
  return progress_line(first, now, columns) + "\n";
}

Progress::Progress(ProgressStyle style, std::function<ProgressSample()> sample)
    : style_(style), sample_(std::move(sample)), lines_(style) {
  if (style_ == ProgressStyle::none) return;
  lines_.add(sample_(), 0);  // the first window begins now, not after the first tick
  ticker_.emplace("progress", tick, [this] { write(); });
}

Progress::~Progress() {
  ticker_.reset();
  if (style_ == ProgressStyle::line) std::fputs("\r\033[K", stderr);
}

void Progress::write() {
  // One column stays free: if a line wraps, \r cannot return to its start.
  const int columns = style_ == ProgressStyle::line ? terminal_columns(STDERR_FILENO) - 1 : 0;
  const std::string text = lines_.add(sample_(), columns);
  if (text.empty()) return;
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace millrace
