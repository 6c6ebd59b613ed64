#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/variant.hpp"
#include "run/config.hpp"
#include "run/devices.hpp"
#include "run/setup.hpp"

namespace millrace {

/// Opens the libraries of a variant. Returns the reason if they cannot be used, else an empty text.
using VariantOpener = std::function<std::string(const Variant&)>;

/// Gives packages the compiled variants that this run uses, by models.engine:
/// - auto: the variant of the plan in the output folder; for a new plan, the first that fits and passed the quality gate
/// - aoti: for each package that has variants, the first that fits
/// - others: none
///
/// Returns notes for the user about variants that auto does not use, and on a GPU about packages without one. Without `open`, libraries are not opened.
/// Throws:
/// - VariantError with aoti, if a package has variants but none that fits, or if no package has one
/// - PlanMismatch with auto, if the variant of the plan cannot be used
std::vector<std::string> use_variants(Packages& packages, const Config& config, const Devices& devices,
                                      const VariantOpener& open);

}  // namespace millrace
