#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "io/input/source.hpp"
#include "run/config.hpp"
#include "run/report.hpp"
#include "run/setup.hpp"

namespace millrace {

inline constexpr const char* tool = "millrace " MILLRACE_VERSION;

/// The input of a run. Everything that it refers to must outlive the run.
struct JobRequest {
  const Config& config;
  const Devices& devices;
  SourceSpec spec;
  Packages packages;
  std::vector<std::string> notes{};  ///< notes for the report that are known before the run
  bool add_new = false;              ///< append new pictures of the input to a finished plan
};

/// The progress of a run at one moment.
struct ProgressSample {
  Snapshot snapshot;
  std::int64_t done = 0;  ///< finished items, including those of earlier attempts
  std::int64_t failed = 0;
  std::int64_t planned = 0;  ///< items known so far
  bool plan_complete = false;
  bool ready = false;  ///< models are loaded and warm, so only the input can delay the first picture
  WindowProgress windows{};
};

/// Gets the events of a run. An exception from one of these functions ends the run.
class JobListener {
 public:
  virtual ~JobListener() = default;
  /// A warning in one sentence. Called on the thread that commits, or on the thread of run_job().
  virtual void warn(const std::string& text) = 0;
  /// How the run divides the memory of a device. Called before the first picture.
  virtual void planned(const MemoryPlan& plan) = 0;
  /// Called once, when the output folder is locked and request and plan have passed all checks.
  /// `attempt` is the folder of the attempt.
  virtual void accepted(const std::string& /*attempt*/) {}
  /// A picture failed; `error` is its line in errors.jsonl. Called on the thread that commits.
  virtual void failed(const std::string& /*error*/) {}
  /// A segment is finished: its files are complete and durable. Called on the thread that commits or plans.
  virtual void finished(const Manifest& /*segment*/) {}
  /// `stop` asks the run to stop. Any thread may call it until ended().
  virtual void on_stop(std::function<void()> stop) = 0;
  /// The pipeline starts. Any thread may call `sample` until ended().
  virtual void began(std::function<ProgressSample()> sample) = 0;
  /// Called after began(). Any thread may call both until ended(). `so_far` makes the report of the run up to now, with
  /// the state "running". `newest` makes a timeline.json of the newest batches; empty if there are none.
  virtual void reports(std::function<RunReport()> /*so_far*/, std::function<std::string()> /*newest*/) {}
  /// The run has ended, for any reason. Also called if on_stop() or began() threw.
  virtual void ended() noexcept = 0;
};

/// Runs one attempt: makes and locks the output folder, then scans, reads, computes and commits.
/// After JobListener::accepted() it writes a report, however the run ends.
/// Throws the error that ended the run. Errors of single pictures are in the segments.
/// `factory` loads packages.
RunReport run_job(JobRequest request, const EngineFactory& factory, JobListener& listener);

/// "12 folders could not be listed (a, b), so ...", with `remedy` at its end. Empty if all folders could be listed.
std::string unreadable_folders(const ScanCounts& counts, const std::string& remedy);

/// The numbers for a run of this config on this machine. If `output` has a plan, its team size stays.
ResolvedConfig resolve_for(const Config& config, const std::string& output, const Devices& devices,
                           int most_lanes = std::numeric_limits<int>::max());

/// The number of lanes for which the memory of the host may be enough; the largest number if it does not matter: on a GPU,
/// or if the user names a number of lanes, who knows better.
int most_lanes(const Config& config, const Packages& packages, const Devices& devices);

/// The machine of a run, so that comparisons can name it: CPU, cores, memory, device.
nlohmann::json machine_json(const Devices& devices);

}  // namespace millrace
