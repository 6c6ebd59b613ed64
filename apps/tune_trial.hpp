#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/child_run.hpp"
#include "apps/estimate.hpp"
#include "pipeline/what_if.hpp"
#include "run/resolve.hpp"
#include "run/settings.hpp"

namespace millrace {

/// What a run over a sample measured.
struct TrialRun {
  ChildEnd end;
  bool ok = false;            ///< false: it failed, and the figures mean nothing
  bool all_failed = false;    ///< it ended well, but without a picture
  double pictures_per_s = 0;  ///< from the first picture to the last commit
  double latency_s = 0;       ///< 95 % of the pictures took no longer
  std::optional<Recording> recording{};

  [[nodiscard]] bool ran_out_of_memory() const;
  /// Why it failed, for people; mostly the last line of its messages.
  [[nodiscard]] std::string why() const;
};

/// Runs samples as child processes.
class TrialRunner {
 public:
  /// `folder` is for outputs. `settings` are those of the user, and `usual` are their numbers without changes.
  /// All must outlive it; `signals` may be null.
  TrialRunner(const Settings& settings, const ResolvedConfig& usual, const std::string& folder, StopSignals* signals)
      : settings_(settings), usual_(usual), folder_(folder), signals_(signals) {}

  /// From now on, runs take these pictures. They leave out the last ones that would not fill a batch of each lane.
  void use_sample(const SamplePlan& sample) { sample_ = sample; }
  /// The output folder of the last run of this name.
  [[nodiscard]] std::string output(const std::string& name) const { return folder_ + "/" + name; }
  /// Runs the sample with these values of options.
  TrialRun run(const std::vector<std::pair<std::string, std::string>>& values, const std::string& name);

 private:
  [[nodiscard]] std::int64_t pictures_of(const std::vector<std::pair<std::string, std::string>>& values) const;

  const Settings& settings_;
  const ResolvedConfig& usual_;
  const std::string& folder_;
  StopSignals* const signals_;
  SamplePlan sample_;
};

/// How near the results of another precision are to those of the defaults.
struct Agreement {
  double mean_iou = 1, p1_iou = 1;  ///< of the masks; of the boxes where there are no masks
  double lone_objects = 0;          ///< share of the objects that only one of them found, or with another class
  std::int64_t pairs = 0;           ///< objects that both found
  bool good = false;                ///< near enough to use the precision; docs/tune.md has the limits
  [[nodiscard]] std::string text() const;
};
/// Compares two output folders of the same pictures.
Agreement agreement(const std::string& defaults, const std::string& other);

}  // namespace millrace
