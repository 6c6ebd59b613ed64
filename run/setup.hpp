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

/// Whether an input is a manifest that may contain boxes. Its content is known only when the scan reads it.
bool may_bring_boxes(const std::string& input);

/// The source of the plan. Throws UsageError for missing or contradicting options of the input.
SourceSpec source_spec(const Config& config);

/// Throws UsageError if a stage needs a model and no package is named.
void check_models(const Config& config, const SourceSpec& spec);

/// Reads and checks every package that the stages of the recipe and of the views name.
/// Throws PackageError, or UsageError if a stage cannot use a package.
Packages read_packages(const Config& config);

/// The text about a package in a plan: its name, the first digits of its fingerprint, and the variant that a run uses.
std::string planned_text(const Package& package);

/// A view with the chain of its pictures.
struct PlannedView {
  std::string name;
  const Chain* chain = nullptr;  ///< belongs to the config
};
/// The views in the order of `names`, which is that of the plan: Item::view is an index into it.
std::vector<PlannedView> planned_views(const Config& config, const std::vector<std::string>& names);

/// Everything except the source that determines results: options of the stages, batch and team size, device, precision,
/// fingerprints of the packages.
nlohmann::json plan_settings(const Config& config, const ResolvedConfig& resolved, const Packages& packages,
                             const Devices& devices);

/// A setting of the plan in this output folder. Null if the plan or the setting does not exist.
nlohmann::json planned_setting(const std::string& output_folder, const std::string& name);

/// The team size of the plan in this output folder, if there is a plan.
std::optional<int> planned_team(const std::string& output_folder);

/// The absolute path of the output folder. The config must name one.
std::string output_path(const Config& config);

/// Makes the output folder and returns its absolute path. Throws StorageError.
std::string make_output_folder(const Config& config);

}  // namespace millrace
