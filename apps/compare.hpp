#pragma once

#include <string>
#include <vector>

#include "apps/attempt.hpp"
#include "base/json.hpp"
#include "io/results/comparison.hpp"

namespace millrace {

/// The differences between two attempts, for programs (`--json`). `results` may be null: then both attempts belong to
/// the same output folder, which has one set of results.
/// Settings and machine come from run.json; an attempt without that file, or of an older version, has none of them.
nlohmann::json compare_attempts(const Attempt& first, const Attempt& second, const ResultsComparison* results);

/// The same for people.
std::string comparison_text(const nlohmann::json& comparison, int columns);

/// Draws the objects of both outputs on each picture of `worst`, the first output on the left.
/// Writes FOLDER/1.jpg, FOLDER/2.jpg, ... and makes the folder. A picture that cannot be read again, or would be too wide
/// for a JPEG, is left out. Returns a sentence for each one that was left out.
/// Throws StorageError, PluginError, and UsageError if `output` has no plan.
std::vector<std::string> draw_differences(const std::vector<PictureDifference>& worst, const std::string& output,
                                          const std::string& folder);

}  // namespace millrace
