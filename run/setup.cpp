#include "run/setup.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "io/files/files.hpp"
#include "io/results/plan_files.hpp"
#include "run/builtin.hpp"

namespace millrace {
namespace {

double parse_share(const std::string& text) {
  std::string digits = text;
  double unit = 1;
  if (!digits.empty() && digits.back() == '%') {
    digits.pop_back();
    unit = 0.01;
  }
  char* end = nullptr;
  const double share = std::strtod(digits.c_str(), &end) * unit;
  if (unit == 1 && !digits.empty() && *end == '\0' && share >= 1) {
    throw UsageError("input.sample is '" + text + "': write " + text + "% for a percentage, or 100% for all pictures");
  }
  if (digits.empty() || *end != '\0' || !(share > 0 && share <= 1)) {
    throw UsageError("input.sample is '" + text + "'; it must be a share such as 1% or 0.01");
  }
  return share;
}

bool is_recipe(const std::string& input) {
  const std::string extension = extension_of(input);
  std::error_code error;  // a folder may have any name
  return (extension == "yaml" || extension == "yml") && !std::filesystem::is_directory(input, error);
}

void check_detectors(const Config& config, const SourceSpec& spec) {
  if (config.chain.find("detect") == nullptr) return;
  std::map<std::string, std::string> named;
  for (const auto& rule : config.views) {
    if (rule.detector.empty()) continue;
    const auto [first, is_new] = named.emplace(rule.name, rule.detector);
    if (!is_new && first->second != rule.detector) {
      throw UsageError("view '" + rule.name + "' has two detectors, '" + first->second + "' and '" + rule.detector +
                       "': a view has one; give the second rule another name");
    }
  }
  if (std::any_of(spec.inputs.begin(), spec.inputs.end(), may_bring_boxes)) return;
  for (const auto& view : planned_views(config, Views(spec.views).names())) {
    if (!view.detector.empty()) continue;
    throw UsageError((config.views.size() == 1 ? "no detector is named" : "view '" + view.name + "' has no detector") +
                     std::string(": add --detector PACKAGE, or give the boxes in a CSV or JSONL manifest"));
  }
}

}  // namespace

bool may_bring_boxes(const std::string& input) {
  const std::string extension = extension_of(input);
  return extension == "csv" || extension == "jsonl" || extension == "ndjson";
}

SourceSpec source_spec(const Config& config) {
  const InputOptions& input = config.input;
  if (input.paths.empty()) {
    throw UsageError(
        "no input is named; add --input with a folder, pictures, a glob, a list, a manifest, or - for stdin");
  }
  if (input.source != "files" && input.source != "memory")
    throw UsageError("input.source is '" + input.source + "'; it can be files or memory");
  const auto recipe = std::find_if(input.paths.begin(), input.paths.end(), is_recipe);
  if (recipe != input.paths.end()) {
    throw UsageError("'" + *recipe + "' is named as an input and looks like a recipe: put it before --input");
  }
  const std::string& output = config.output.folder;
  for (const auto& path : input.paths) {
    std::error_code missing;  // then it is not the same
    if (!output.empty() && std::filesystem::equivalent(path, output, missing)) {
      throw UsageError("the output folder '" + output + "' is an input too: choose another --output");
    }
  }
  SourceSpec spec;
  spec.inputs = input.paths;
  spec.follow_dirs = input.follow_dirs;
  spec.nul_separated = input.nul_separated;
  spec.selection.sample = parse_share(input.sample);
  spec.selection.seed = static_cast<std::uint64_t>(input.seed);
  spec.selection.every = input.every;
  spec.selection.limit = input.limit;
  const auto& views = config.views;
  const bool everything = views.size() == 1 && views.front().pattern.empty();
  if (everything && views.front().name == default_view) return spec;
  for (const auto& view : views) spec.views.push_back({view.name, everything ? "**" : view.pattern});
  return spec;
}

void check_models(const Config& config, const SourceSpec& spec) {
  check_detectors(config, spec);
  if (config.chain.find("segment") != nullptr && config.models.segmenter.empty()) {
    throw UsageError(
        "no segmenter is named: add --segmenter PACKAGE, or name a recipe without 'segment' and 'postprocess', such "
        "as " +
        find_builtin_recipe("detect.yaml"));
  }
}

Packages read_packages(const Config& config) {
  const ModelOptions& models = config.models;
  Packages packages;
  const auto add = [&](const std::string& folder, Task task, const std::string& what, const std::string& origin) {
    if (folder.empty()) return;
    auto& package = packages[folder];
    try {
      if (package == nullptr) package = std::make_shared<const Package>(read_package(folder));
    } catch (const PackageError& error) {
      throw PackageError(std::string(error.what()) + " (" + what + ", " + origin + ")");
    }
    if (package->task != task) {
      throw PackageError("'" + folder + "' is named as " + what + " (" + origin +
                         "), but its model.yaml says task: " + (package->task == Task::detect ? "detect" : "segment"));
    }
  };
  if (config.chain.find("detect") != nullptr) {
    add(models.detector, Task::detect, "the detector", config.detector_origin);
    for (const auto& view : config.views)
      add(view.detector, Task::detect, "the detector of view '" + view.name + "'", config.views_origin);
  }
  if (config.chain.find("segment") != nullptr)
    add(models.segmenter, Task::segment, "the segmenter", config.segmenter_origin);
  return packages;
}

std::vector<View> planned_views(const Config& config, const std::vector<std::string>& names) {
  const ModelOptions& models = config.models;
  std::vector<View> views;
  for (const auto& name : names) {
    View view{name, "", models.detector};
    for (const auto& rule : config.views) {
      if (rule.name == name && !rule.detector.empty()) view.detector = rule.detector;
    }
    views.push_back(view);
  }
  return views;
}

nlohmann::json plan_settings(const Config& config, const Numbers& numbers, const Packages& packages,
                             const Devices& devices) {
  nlohmann::json plan = *config.results;
  plan["batch_size"] = numbers.batch_size;
  plan["team"] = numbers.team;
  // What was left to the machine is fixed by now, however it was asked for; the input stands in the plan's source, and
  // a package is what is in it, wherever it lies.
  plan["device"] = devices.name;
  if (!devices.cpu_level.empty()) {
    plan["cpu_level"] = devices.cpu_level;
    plan["mkl_instructions"] = devices.mkl_instructions;
  }
  plan["precision"] = numbers.precisions.name();
  for (const char* group : {"batch", "threads", "input", "models", "device"}) plan["options"].erase(group);
  const ModelOptions& models = config.models;
  const auto fingerprint = [&](const std::string& folder) {
    const auto found = packages.find(folder);
    return found == packages.end() ? std::string()
                                   : found->second->name + " " + found->second->fingerprint.substr(0, 16);
  };
  plan["packages"]["detector"] = fingerprint(models.detector);
  plan["packages"]["segmenter"] = fingerprint(models.segmenter);
  for (const auto& view : config.views) {
    if (!view.detector.empty()) plan["packages"]["views"][view.name] = fingerprint(view.detector);
  }
  return plan;
}

nlohmann::json planned_setting(const std::string& output_folder, const std::string& name) {
  if (output_folder.empty() || !std::filesystem::exists(output_folder + "/plan/plan.json")) return {};
  const auto plan = PlanFiles(output_folder).read_plan();
  if (!plan || !plan->contains("settings")) return {};
  const auto& settings = plan->at("settings");
  const auto found = settings.find(name);
  return found == settings.end() ? nlohmann::json() : *found;
}

std::optional<int> planned_team(const std::string& output_folder) {
  const auto team = planned_setting(output_folder, "team");
  return team.is_number_integer() ? std::optional(team.get<int>()) : std::nullopt;
}

std::string output_path(const Config& config) {
  const std::string& folder = config.output.folder;
  std::string path = std::filesystem::absolute(folder).lexically_normal().string();
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path;
}

std::string make_output_folder(const Config& config) {
  const std::string& folder = config.output.folder;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw StorageError("create the output folder", folder, error.value());
  return output_path(config);
}

}  // namespace millrace
