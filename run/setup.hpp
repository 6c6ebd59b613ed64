#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "io/input/source.hpp"
#include "run/config.hpp"
#include "run/resolve.hpp"
#include "stages/stage_models.hpp"

namespace millrace {

/// Whether an input is a manifest that may give boxes; what it holds is known only as it is read.
bool may_bring_boxes(const std::string& input);

/// What the plan is made from. Throws UsageError when no input is named.
SourceSpec source_spec(const Config& config);

/// Throws UsageError where a stage has no model that it could run.
void check_models(const Config& config, const SourceSpec& spec);

/// Reads and checks every package that a stage of the chain needs. Throws PackageError.
Packages read_packages(const Config& config);

/// The views in the order of the plan (Item::view is an index into it), each with the chain of its pictures.
struct PlannedView {
  std::string name;
  const Chain* chain = nullptr;  ///< of the config
};
std::vector<PlannedView> planned_views(const Config& config, const std::vector<std::string>& names);

/// All that determines results besides the source: options of the stages used, batch and team size, device,
/// fingerprints of the packages.
nlohmann::json plan_settings(const Config& config, const Numbers& numbers, const Packages& packages,
                             const Devices& devices);

/// A setting of the plan in this output folder; null where there is none.
nlohmann::json planned_setting(const std::string& output_folder, const std::string& name);

/// The team size of the plan in this output folder, if there is a plan.
std::optional<int> planned_team(const std::string& output_folder);

/// The absolute path of the output folder, which is named.
std::string output_path(const Config& config);

/// Makes the output folder and returns its absolute path. Throws StorageError when it cannot be.
std::string make_output_folder(const Config& config);

}  // namespace millrace
