#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "run/figures.hpp"
#include "run/sample_files.hpp"

namespace millrace {

/// The times of a run over a sample.
struct SampleTimes {
  std::int64_t pictures = 0;
  double start_s = 0;      ///< before the first picture: start of the program, scan, models
  double window_s = 0;     ///< from the first picture to the last commit
  double end_s = 0;        ///< after the last commit
  bool end_grows = false;  ///< the run ends with work on all pictures, such as coco.json
  /// Of the window; see Phases. Unknown if the sample only filled and drained the pipeline.
  std::optional<double> fill_s, drain_s, steady_pictures_per_s;
  std::int64_t outside = 0;          ///< pictures of the first commit, and those of the draining
  std::optional<double> most_per_s;  ///< pictures/s if the busiest threads were never idle
  Spread block_s;                    ///< times of blocks of `block` pictures; only their ratios to the mean count
  double block = 0;
  /// How much faster the sample would have been without other programs: 0.5 for 50 %. They may take twice as much later.
  double gain_without_others = 0;
};

struct TimeEstimate {
  Figure wall_s;          ///< of the whole program
  Figure pictures_per_s;  ///< of the pipeline, between filling and draining
};
TimeEstimate estimate_time(const SampleTimes& sample, std::int64_t pictures);

/// What a run will do.
struct EstimateScope {
  std::int64_t pictures = 0;       ///< to process
  std::int64_t done = 0;           ///< finished by earlier attempts
  std::int64_t segments = 0;       ///< to write
  std::int64_t to_plan = 0;        ///< pictures that the plan lacks
  std::int64_t plan_segments = 0;  ///< that the plan lacks
  std::int64_t objects = 0;        ///< in the sample
};

/// A part of the output folder.
struct OutputPart {
  std::string name;
  Figure bytes, files;
};
struct OutputEstimate {
  std::vector<OutputPart> parts;
  Figure bytes, files;  ///< of all parts
  Figure disk_bytes;    ///< with the ends of blocks, with folders, and with files that the run removes again
  Figure inodes;        ///< files and folders
};
/// The files that a run adds to its output folder.
OutputEstimate estimate_output(const SampleFiles& sample, const EstimateScope& scope, const Figure& wall_s);

/// The resident memory of a run over a sample.
struct SampleMemory {
  static constexpr int early = 4;  ///< the early peak is that of the first 1/early of the pictures
  std::int64_t pictures = 0;
  double peak_bytes = 0, early_peak_bytes = 0;
  Spread resident_bytes{};  ///< at moments in the second half of the sample
};
/// The peak of a run. More pictures make it higher, because some of them need more memory than all before.
Figure estimate_memory(const SampleMemory& sample, std::int64_t pictures);

}  // namespace millrace
