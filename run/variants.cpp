#include "run/variants.hpp"

#include <map>
#include <optional>

#include "base/json.hpp"
#include "io/files/source_names.hpp"
#include "io/results/plan.hpp"
#include "models/engines/cpu_level.hpp"

namespace millrace {
namespace {

// Texts in the plan's "packages" by option: "segment.model", "views.night.segment.model".
using Texts = std::map<std::string, std::string>;

void collect(const nlohmann::json& packages, const std::string& prefix, Texts& texts) {
  for (const auto& [key, value] : packages.items()) {
    if (value.is_string()) texts[prefix + key] = value.get<std::string>();
    if (value.is_object()) collect(value, prefix + key + ".", texts);
  }
}

struct Planned {
  std::string option;   ///< that names the package
  std::string variant;  ///< its id, or empty if the plan runs the package without one
};

// What the plan says about this package. Nothing: the plan does not have the package, or there is no plan.
std::optional<Planned> find_planned(const Texts& texts, const Package& package) {
  const std::string id = planned_text(package);
  for (const auto& [option, text] : texts) {
    if (text == id) return Planned{option, ""};
    if (text.starts_with(id + " ")) return Planned{option, text.substr(id.size() + 1)};
  }
  return std::nullopt;
}

// The machine that a variant of this precision must name. In fp32, code for AVX-512 also fits the levels for bf16.
std::string machine_of(const Devices& devices, Precision precision) {
  if (devices.kind != Devices::Kind::cpu) return devices.name;
  const auto level = cpu_level_of(devices.cpu_level);
  if (level && precision == Precision::fp32) return "cpu " + std::string(name_of(fp32_level(*level)));
  return "cpu " + devices.cpu_level;
}

struct Choice {
  std::shared_ptr<const Variant> variant;
  std::vector<std::string> reasons;  ///< why other variants are not used, one for each
  bool worth_a_note = false;         ///< the reasons are not only that variants are for other machines
};

Choice choose(const Package& package, const std::vector<std::filesystem::path>& places, const VariantNeeds& needs,
              const std::optional<Planned>& planned, bool by_name, const VariantOpener& open) {
  Choice choice;
  const auto reject = [&](const std::filesystem::path& folder, const std::string& reason, bool note) {
    choice.reasons.push_back(folder.string() + ": " + reason);
    choice.worth_a_note = choice.worth_a_note || note;
  };
  for (const auto& folder : variant_folders(places)) {
    try {
      const auto variant = std::make_shared<Variant>(read_variant(folder, package));
      if (planned && planned->variant != variant->id()) {
        reject(folder, "is '" + variant->id() + "'", false);
        continue;
      }
      if (const auto reason = misfit(*variant, needs)) {
        reject(folder, *reason, false);
        continue;
      }
      if (!variant->gated && !by_name && !planned) {
        reject(folder, "its results were not checked; compile the package with --images, or use --engine aoti", true);
        continue;
      }
      check_libraries(*variant);  // reads them, so it comes after the reasons that need no reading
      if (const std::string failure = open ? open(*variant) : ""; !failure.empty()) {
        reject(folder, failure + "; compile the package again", true);
        continue;
      }
      choice.variant = variant;
      return choice;
    } catch (const VariantError& error) {
      choice.reasons.emplace_back(error.what());
      choice.worth_a_note = true;
    }
  }
  return choice;
}

}  // namespace

std::vector<std::string> use_variants(Packages& packages, const Config& config, const Devices& devices,
                                      const VariantOpener& open) {
  const std::string& engine = config.models.engine;
  const bool by_name = engine == "aoti";
  const bool on_cpu = devices.kind == Devices::Kind::cpu;
  if (!by_name && engine != "auto") return {};
  if (!on_cpu && devices.kind != Devices::Kind::cuda) return {};
  Texts planned;
  if (!config.output.folder.empty()) collect(planned_setting(output_path(config), "packages"), "", planned);
  const Precisions precisions = find_precisions(config.device.precision, devices);
  std::vector<std::string> notes;
  bool found = false;
  for (auto& [folder, package] : packages) {
    const auto of_plan = find_planned(planned, *package);
    if (of_plan && of_plan->variant.empty() && !by_name) continue;
    const Precision precision = precisions.of(*package->task);
    const VariantNeeds needs{
        .machine = machine_of(devices, precision), .cpu_flags = cpu_flags(), .precision = precision};
    const auto places = config.models.variants.empty() ? variant_places(*package)
                                                       : std::vector<std::filesystem::path>{config.models.variants};
    Choice choice = choose(*package, places, needs, of_plan, by_name, open);
    std::string text;
    // Reasons quote files, which may contain any bytes.
    for (const auto& reason : choice.reasons) text += (text.empty() ? "" : "; ") + display_name(reason);
    if (choice.variant != nullptr) {
      auto with_variant = *package;
      with_variant.variant = std::move(choice.variant);
      package = std::make_shared<const Package>(std::move(with_variant));
      found = true;
    } else if (by_name && !text.empty()) {
      throw VariantError("models.engine is 'aoti', but no variant of " + package->name + " can be used: " + text);
    } else if (by_name || (!on_cpu && text.empty() && !of_plan)) {
      notes.push_back(package->name + " has no compiled variant, so it runs with TorchScript; `millrace compile " +
                      folder + (on_cpu ? "" : " --device cuda") + " --images PICTURES` makes one");
    } else if (of_plan) {
      throw PlanMismatch("the plan in '" + display_name(config.output.folder) + "' computes " + of_plan->option + " (" +
                         package->name + ") with the compiled variant '" + of_plan->variant +
                         "', which was removed, or compiled again, or does not fit this run: " +
                         (text.empty() ? "no variant was found" : text) +
                         ". To continue, restore it and use the same settings. Otherwise, name a new output folder");
    } else if (choice.worth_a_note || !on_cpu) {
      notes.push_back(package->name + " runs without its compiled variant: " + text);
    }
  }
  if (by_name && !found)
    throw VariantError(
        "models.engine is 'aoti', but no package of this run has a compiled variant; `millrace compile "
        "PACKAGE` makes one");
  return notes;
}

}  // namespace millrace
