#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "io/input/scan.hpp"
#include "io/reducers/reducer.hpp"
#include "io/results/segments_manifest.hpp"
#include "models/cache.hpp"
#include "pipeline/statistics.hpp"
#include "pipeline/verdict.hpp"
#include "run/memory_plan.hpp"
#include "run/resource_log.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// Everything that is told of a run when it ends; report.json and what is printed are made from it.
struct RunReport {
  std::string run;  ///< name of its folder below runs/
  std::string output_folder;
  std::vector<std::string> side_outputs;  ///< beside the segments, below output_folder: "overlay", "coco.json"
  std::string started;                    ///< UTC
  std::string state;                      ///< "finished", "stopped" or "failed"
  std::string error;                      ///< what ended a failed run

  std::int64_t planned = 0;  ///< items of the plan; final when plan_complete
  bool plan_complete = false;
  Counts counts;                ///< of all attempts; counts.resumed were finished by earlier ones
  std::int64_t failed_now = 0;  ///< of the failed, those of this attempt, which stand in its errors.jsonl
  ScanCounts scan;              ///< what the plan passed over

  std::int64_t load_ns = 0;     ///< reading and loading packages
  std::int64_t warm_up_ns = 0;  ///< first calls of the models on the lanes, summed
  Snapshot window;              ///< of this attempt, from the first admission to the last commit
  Verdict verdict;

  int batch_size = 1;
  int team = 1;
  std::int64_t read_bytes = 0;
  std::int64_t written_bytes = 0;  ///< segment lines and side files
  CacheStatistics models;
  std::vector<MemoryPlan> memory;                           ///< of each GPU
  std::vector<GpuSummary> gpus;                             ///< by the driver
  std::vector<std::pair<std::string, std::int64_t>> calls;  ///< Counters and DeviceCounts by name
  std::vector<ReducerOutput> reduced;
  std::vector<std::string> notes;  ///< taken-over lock, dropped journal tails, warnings of decoders by kind
};

/// report.json: numbers with units in their names, no more than is known.
nlohmann::json to_json(const RunReport& report);

}  // namespace millrace
