#pragma once

#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "apps/page/report_page.hpp"
#include "apps/page/series.hpp"
#include "apps/page/thumbnails.hpp"
#include "apps/progress.hpp"
#include "apps/serve/http_server.hpp"
#include "run/job.hpp"

namespace millrace {

/// What clients see of a run: the page, /status.json and /metrics. docs/live.md describes them.
///
/// The run tells it what happens, on its own threads. A server asks it, on one thread: tick() and answer().
/// Its memory does not grow with the length of the run.
class LiveRun {
 public:
  /// `output` is the output folder as the user named it. A chart has up to twice `most_points`.
  explicit LiveRun(std::string output, std::size_t most_points = most_points_of_chart);

  void accepted(const std::string& attempt);
  void began(std::function<ProgressSample()> sample);
  void reports(std::function<RunReport()> so_far, std::function<std::string()> newest);
  /// When it returns, no call of `sample`, `so_far` or `newest` is running, and none will come.
  void ended() noexcept;
  void finished(const RunReport& report);
  void failed(const std::string& error);

  /// Takes a sample. Call it once a second.
  void tick();
  /// The answer to a request that may read. Nothing: it waits for the state after the next tick.
  std::optional<HttpReply> answer(const HttpRequest& request);

 private:
  /// What the run has told so far.
  struct Told {
    std::string state = "starting";
    std::string attempt;  ///< folder; empty before accepted()
    std::string error;
    std::optional<RunReport> report;
    std::string timeline;      ///< of the newest batches, as JSON; empty: none
    std::int64_t version = 1;  ///< grows with each state that clients can see
    bool completing = false;   ///< the pipeline has ended, and files are completed
  };
  /// The same until the version changes: many requests cost no more than one.
  const Told& told();
  void change(const std::function<void()>& change);
  std::shared_ptr<const std::string> status();
  std::shared_ptr<const std::string> page();
  nlohmann::json figures(const Told& told);
  nlohmann::json thumbnail(const std::string& path);
  void read_series(const std::string& attempt);
  void read_so_far();

  const std::string output_;

  std::mutex mutex_;  // guards these
  Told told_;
  std::function<ProgressSample()> sample_;
  std::function<RunReport()> so_far_;
  std::function<std::string()> newest_;

  // Only the server's thread uses these.
  ProgressWindow window_;
  std::optional<ProgressSample> first_, now_;  // of the last 10 s
  std::ifstream csv_;
  std::string half_line_;
  CsvSeries series_;
  Told asked_;  // for the requests of this version
  bool asked_once_ = false;
  std::optional<Thumbnails> thumbnails_;
  std::map<std::string, std::shared_ptr<const nlohmann::json>> shown_;  // thumbnails by path
  bool may_show_another_ = false;                                       // in this version
  std::shared_ptr<const std::string> status_, page_;  // of `asked_`; null until somebody asks for them
};

}  // namespace millrace
