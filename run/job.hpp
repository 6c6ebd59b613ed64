#pragma once

#include <functional>
#include <string>
#include <vector>

#include "io/input/source.hpp"
#include "run/config.hpp"
#include "run/report.hpp"
#include "run/setup.hpp"

namespace millrace {

inline constexpr const char* tool = "millrace " MILLRACE_VERSION;

/// What is to be run; outlives the run.
struct JobRequest {
  const Config& config;
  const Devices& devices;
  SourceSpec spec;
  Packages packages;
  std::vector<std::string> notes{};  ///< known before the run, for the report
  bool add_new = false;              ///< append what is new in the input to a finished plan
};

/// How far a run is at one moment.
struct ProgressSample {
  Snapshot snapshot;
  std::int64_t done = 0;  ///< items finished, those of earlier attempts included
  std::int64_t failed = 0;
  std::int64_t planned = 0;  ///< items known so far
  bool plan_complete = false;
  bool ready = false;  ///< models are loaded and warm: what is not admitted now waits for the input
};

/// Hears of a run while it goes on. An exception from one of these ends the run.
class JobListener {
 public:
  virtual ~JobListener() = default;
  /// A warning, in one sentence. From the thread that commits, or the one that called run_job().
  virtual void warn(const std::string& text) = 0;
  /// How the memory of a device is shared out, before the first picture.
  virtual void planned(const MemoryPlan& plan) = 0;
  /// Once, when the output is locked and everything fits: the request is sound, and the run begins.
  virtual void accepted() {}
  /// `stop` asks the run to stop. It may be called from any thread until ended().
  virtual void on_stop(std::function<void()> stop) = 0;
  /// The run proper begins; `sample` may be called from any thread until ended().
  virtual void began(std::function<ProgressSample()> sample) = 0;
  /// The run is over, however it ended; also where on_stop() or began() threw.
  virtual void ended() noexcept = 0;
};

/// One attempt, from an output folder that is made and locked to its report: scans, reads, computes, commits. A report
/// is written however it ends. Throws what ended the run; what concerns single pictures stands in the segments.
/// `factory` loads packages.
RunReport run_job(JobRequest request, const EngineFactory& factory, JobListener& listener);

/// "12 folders could not be listed (a, b), so ...", with `remedy` at its end; empty where all were listed.
std::string unreadable_folders(const ScanCounts& counts, const std::string& remedy);

/// The numbers of a run of this config on this machine; the team size of a plan in `output` stays.
Numbers numbers_for(const Config& config, const std::string& output, const Devices& devices);

}  // namespace millrace
