#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "apps/exit_code.hpp"
#include "apps/run.hpp"
#include "io/input/source.hpp"
#include "run/estimate.hpp"
#include "run/report.hpp"

namespace millrace {

/// `millrace estimate` as the user typed it, without the arguments of the run.
struct EstimateArguments {
  std::optional<std::int64_t> pictures;  ///< of the sample
  bool json = false;
  std::vector<std::string> run;  ///< the other arguments
};
/// Throws UsageError.
EstimateArguments parse_estimate(const std::vector<std::string>& arguments);

/// The text of `millrace estimate --help`.
std::string estimate_help();

/// Runs a sample of the input into a temporary folder, and prints what a run over the input would need.
/// The parameters are those of run(). Returns `storage` if the run does not fit on the disk of its output.
ExitCode estimate(const EstimateArguments& own, const RunArguments& arguments, const Config& config,
                  const EngineFactory& factory, const VariantOpener& open_variant, StopSignals* signals);

/// A run over a part of the input.
struct SampleRun {
  std::int64_t every = 1;  ///< its pictures are the first one, the one `every` pictures later, ...
  RunReport report;
  SampleTimes times;
  SampleFiles files;
  SampleMemory memory;
  double wall_s = 0;
};

/// How to take the sample.
struct SamplePlan {
  std::int64_t every = 1;
  std::int64_t pictures = 0;
};
/// At most `wanted` pictures from the whole length of an input of `pictures`. `every` is 1 or a prime number. So an
/// input that changes its views in turns gives pictures of all of them, unless `every` is the number of views.
SamplePlan plan_sample(std::int64_t pictures, std::int64_t wanted);

/// The file system of an output.
struct DiskSpace {
  double bytes = 0;
  std::optional<double> inodes;  ///< empty: the file system has no fixed number
};

/// What is known about a run before it starts.
struct EstimateFacts {
  std::string output;  ///< as the user named it
  DryRun input;
  std::optional<OutputState> state;  ///< of an output with a plan
  EstimateScope scope;
  DiskSpace free;
  std::optional<SampleRun> sample;  ///< empty: no picture is left, or the sample did not fit on the disk
  bool sample_fits = true;
  std::vector<std::string> notes;
};

/// The estimate for programs. Unknown figures are null. `fits` is false if the upper bounds exceed the free space.
nlohmann::json estimate_json(const EstimateFacts& facts);
/// The same for people.
std::string estimate_text(const nlohmann::json& estimate);

}  // namespace millrace
