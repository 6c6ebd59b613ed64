#include "apps/serve/live_run.hpp"

#include <string_view>
#include <utility>

#include "apps/page/files.hpp"
#include "apps/report_text.hpp"
#include "apps/serve/metrics.hpp"
#include "base/json.hpp"
#include "run/report.hpp"
#include "run/timeline.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr std::size_t most_thumbnails = 12;  // those that the page shows without a click

/// The scripts of the page as one.
const std::string& live_script() {
  static const std::string script =
      std::string(page_files::timeline) + std::string(page_files::script) + std::string(page_files::live);
  return script;
}

HttpReply reply_of(const char* type, std::shared_ptr<const std::string> body) {
  return {.status = 200, .type = type, .body = std::move(body)};
}
HttpReply reply_of(const char* type, std::string body) {
  return reply_of(type, std::make_shared<const std::string>(std::move(body)));
}

}  // namespace

LiveRun::LiveRun(std::string output, std::size_t most_points) : output_(std::move(output)), series_(most_points) {}

void LiveRun::change(const std::function<void()>& change) {
  const std::lock_guard lock(mutex_);
  change();
  ++told_.version;
}

void LiveRun::accepted(const std::string& attempt) {
  change([&] { told_.attempt = attempt; });
}

void LiveRun::began(std::function<ProgressSample()> sample) {
  change([&] {
    sample_ = std::move(sample);
    told_.state = "running";
  });
}

void LiveRun::reports(std::function<RunReport()> so_far, std::function<std::string()> newest) {
  change([&] {
    so_far_ = std::move(so_far);
    newest_ = std::move(newest);
  });
}

void LiveRun::read_so_far() {
  if (so_far_) told_.report = so_far_();
  if (newest_) told_.timeline = newest_();
}

void LiveRun::ended() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    read_so_far();
  } catch (const std::exception&) {  // such as no memory: the final report comes soon
  }
  sample_ = {};
  so_far_ = {};
  newest_ = {};
  told_.completing = true;
  ++told_.version;
}

void LiveRun::finished(const RunReport& report) {
  change([&] {
    told_.state = report.state;
    told_.report = report;
  });
}

void LiveRun::failed(const std::string& error) {
  change([&] {
    told_.state = "failed";
    told_.error = error;
    if (!told_.report) return;
    told_.report->state = told_.state;
    told_.report->error = error;
  });
}

void LiveRun::tick() {
  std::string attempt;
  {
    const std::lock_guard lock(mutex_);
    ++told_.version;
    attempt = told_.attempt;
    if (sample_) {
      now_ = sample_();
      first_ = window_.add(*now_);
    }
  }
  read_series(attempt);
}

/// Reads the rows of resources.csv that are new.
void LiveRun::read_series(const std::string& attempt) {
  if (attempt.empty()) return;
  if (!csv_.is_open()) csv_.open(attempt + "/resources.csv");
  for (std::string line; std::getline(csv_, line);) {
    half_line_ += line;
    if (csv_.eof()) break;  // the rest of this line is not written yet
    series_.add(half_line_);
    half_line_.clear();
  }
  csv_.clear();
}

const LiveRun::Told& LiveRun::told() {
  const std::lock_guard lock(mutex_);
  if (asked_once_ && asked_.version == told_.version) return asked_;
  read_so_far();
  asked_ = told_;
  asked_once_ = true;
  may_show_another_ = true;
  status_ = page_ = nullptr;
  return asked_;
}

/// Makes at most one thumbnail a second, and only while somebody watches, because it takes time from the run.
Json LiveRun::thumbnail(const std::string& path) {
  if (const auto known = shown_.find(path); known != shown_.end()) return *known->second;
  if (!may_show_another_ || shown_.size() >= most_thumbnails) return nullptr;
  may_show_another_ = false;
  if (!thumbnails_) {
    // Pictures can fail only after the plan is written.
    const auto root = picture_root_of(asked_.attempt);
    if (!root) return nullptr;
    thumbnails_.emplace(*root);
  }
  return *shown_.emplace(path, std::make_shared<const Json>(thumbnails_->make(path))).first->second;
}

Json LiveRun::figures(const Told& told) {
  Json figures = told.attempt.empty()
                     ? Json{{"errors", Json::array()}, {"run", nullptr}}
                     : files_of(told.attempt, [this](const std::string& path) { return thumbnail(path); });
  const bool running = told.state == "running" && now_ && !told.completing;
  figures["schema"] = 1;
  figures["version"] = told.version;
  figures["state"] = told.state;
  figures["completing"] = told.completing && told.state == "running";
  figures["error"] = told.error.empty() ? Json() : Json(told.error);
  figures["attempt"] = told.attempt.empty() ? Json() : Json(told.attempt);
  figures["progress"] = running ? to_json(*first_, *now_) : Json();
  figures["report"] = told.report ? to_json(*told.report) : Json();
  figures["series"] = series_.to_json();
  // At the end, the file has more batches.
  const bool over = told.state != "running" && !told.attempt.empty();
  figures["timeline"] = over ? timeline_of(told.attempt) : timeline_from_json(told.timeline);
  return figures;
}

std::shared_ptr<const std::string> LiveRun::status() {
  const Told& now = told();
  if (!status_)
    status_ = std::make_shared<const std::string>(figures(now).dump(-1, ' ', false, Json::error_handler_t::replace));
  return status_;
}

std::shared_ptr<const std::string> LiveRun::page() {
  const Told& now = told();
  if (page_) return page_;
  const Json data = figures(now);
  const Json& report = data.at("report");
  constexpr int columns = 100;
  const bool has_figures = !report.is_null() && !report.at("run_window").is_null();
  const std::string text =
      has_figures ? to_text(report, output_, columns, false) : "No picture is in the pipeline yet.\n";
  page_ =
      std::make_shared<const std::string>(page_of("Millrace run", text, data, live_script(), Loads::from_its_server));
  return page_;
}

std::optional<HttpReply> LiveRun::answer(const HttpRequest& request) {
  if (request.path == "/status.json") {
    const auto after = request.query.find("after");
    {
      const std::lock_guard lock(mutex_);
      const bool over = told_.state != "starting" && told_.state != "running";
      if (after != request.query.end() && after->second == std::to_string(told_.version) && !over) return std::nullopt;
    }
    return HttpReply{.status = 200, .type = "application/json", .body = status()};
  }
  if (request.path == "/metrics") {
    const Told& now = told();
    return reply_of(metrics_type, now.report ? metrics_of(*now.report, now.state) : metrics_of_start(now.state));
  }
  if (request.path == "/") {
    HttpReply reply = reply_of("text/html; charset=utf-8", page());
    reply.headers.emplace_back("Content-Security-Policy",
                               content_policy(live_script(), Loads::from_its_server) + "; frame-ancestors 'none'");
    return reply;
  }
  return text_reply(404, "There is no such page: this server has /, /status.json and /metrics.\n");
}

}  // namespace millrace
