#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "io/input/scan.hpp"
#include "io/reducers/reducer.hpp"
#include "io/results/segments_manifest.hpp"
#include "models/cache.hpp"
#include "pipeline/statistics.hpp"
#include "pipeline/verdict.hpp"
#include "pipeline/what_if.hpp"
#include "run/device_calls.hpp"
#include "run/memory_plan.hpp"
#include "run/resource_log.hpp"
#include "run/start_times.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// The pictures of a view that this attempt committed.
struct ViewCounts {
  std::string name;
  std::int64_t pictures = 0;
  std::int64_t failed = 0;  ///< `pictures` includes them
  std::int64_t objects = 0;
};

/// The facts about a run when it ends. report.json and the printed report are made from it.
struct RunReport {
  std::string run;  ///< name of its folder in runs/
  std::string output_folder;
  std::vector<std::string> side_outputs;  ///< outputs of sinks in output_folder: "overlay", "coco.json"
  std::string started;                    ///< UTC
  std::string state;                      ///< "running", "finished", "stopped" or "failed"
  std::string error;                      ///< message of the error that ended a failed run

  std::int64_t planned = 0;  ///< items of the plan; final if plan_complete
  bool plan_complete = false;
  Counts counts;                  ///< of all attempts; earlier attempts finished counts.resumed of the items
  std::int64_t failed_now = 0;    ///< pictures that failed in this attempt, which its errors.jsonl lists
  std::vector<ViewCounts> views;  ///< in the order of the plan
  ScanCounts scan;                ///< files that the scan skipped

  std::int64_t load_ns = 0;     ///< reading and loading packages
  std::int64_t warm_up_ns = 0;  ///< planning of memory, and first calls of the models until the last lane is warm
  StartTimes start;             ///< the parts of the start
  Snapshot window;              ///< of this attempt, from the moment when all lanes are warm to the last commit
  Verdict verdict;
  std::vector<Prediction> what_if;  ///< the highest rate first; empty if the run was too short
  /// What the newest earlier attempt with a recording predicted for the numbers of this one; nothing if they are the same.
  std::optional<CheckedPrediction> prediction;
  std::string predicted_by;  ///< name of that attempt

  int batch_size = 1;
  int team = 1;
  std::int64_t read_bytes = 0;
  std::int64_t written_bytes = 0;  ///< segment lines and side files
  /// By name of the row: bytes of files that `read` read, of pixels that `decode` made, of side files that `encode`
  /// wrote, and of lines that `commit` wrote. Other stages move no known bytes.
  std::map<std::string, std::int64_t> stage_bytes;
  CacheStatistics models;
  std::vector<MemoryPlan> memory;                           ///< one for each GPU
  std::vector<GpuSummary> gpus;                             ///< measured by the driver
  std::vector<std::pair<std::string, std::int64_t>> calls;  ///< Counters and DeviceCounts by name
  std::optional<DeviceCalls> device_calls;                  ///< nothing if models run on the host
  std::vector<ReducerOutput> reduced;
  std::vector<std::string> notes;  ///< sentences for the user, such as decode warnings and removed parts of a journal
};

/// The value of `what_if` in report.json: predictions for a run that had `pictures_per_s`.
nlohmann::json to_json(const std::vector<Prediction>& predictions, double pictures_per_s);

/// The value of `prediction` in report.json.
nlohmann::json to_json(const CheckedPrediction& prediction);

/// The content of report.json. Names of numbers contain the unit. Unknown values are left out or null: of a run that is
/// running, also those that only its end shows.
nlohmann::json to_json(const RunReport& report);

}  // namespace millrace
