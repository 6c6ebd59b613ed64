#include "run/variants.hpp"

#include <nlohmann/json.hpp>
#include <optional>

#include "io/files/source_names.hpp"
#include "models/engines/cpu_level.hpp"

namespace millrace {
namespace {

// All texts in the plan's "packages": values by option, and by option inside "views".
void collect(const nlohmann::json& packages, std::vector<std::string>& texts) {
  for (const auto& value : packages) {
    if (value.is_string()) texts.push_back(value.get<std::string>());
    if (value.is_object()) collect(value, texts);
  }
}

// The id of the variant that the plan names for this package. Empty: the plan runs it without one.
// Nothing: the plan does not have the package, or there is no plan.
std::optional<std::string> planned_variant(const std::vector<std::string>& planned, const Package& package) {
  const std::string id = planned_text(package);
  for (const std::string& text : planned) {
    if (text == id) return "";
    if (text.starts_with(id + " ")) return text.substr(id.size() + 1);
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
              const std::optional<std::string>& planned, bool by_name, const VariantOpener& open) {
  Choice choice;
  const auto reject = [&](const std::filesystem::path& folder, const std::string& reason, bool note) {
    choice.reasons.push_back(folder.string() + ": " + reason);
    choice.worth_a_note = choice.worth_a_note || note;
  };
  for (const auto& folder : variant_folders(places)) {
    try {
      const auto variant = std::make_shared<Variant>(read_variant(folder, package));
      if (planned && *planned != variant->id()) {
        reject(folder, "the plan names another", false);
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
  std::vector<std::string> planned;
  if (!config.output.folder.empty()) collect(planned_setting(output_path(config), "packages"), planned);
  const Precisions precisions = find_precisions(config.device.precision, devices);
  std::vector<std::string> notes;
  bool found = false;
  for (auto& [folder, package] : packages) {
    const auto of_plan = planned_variant(planned, *package);
    if (of_plan && of_plan->empty() && !by_name) continue;
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
    } else if (by_name) {
      notes.push_back(package->name + " has no compiled variant, so it runs with TorchScript; `millrace compile " +
                      folder + "` makes one");
    } else if (choice.worth_a_note) {
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
