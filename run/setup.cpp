#include "run/setup.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/json.hpp"
#include "io/files/files.hpp"
#include "io/results/plan_files.hpp"
#include "models/variant.hpp"
#include "run/builtin.hpp"
#include "stages/decode.hpp"
#include "stages/encode.hpp"
#include "stages/semantic.hpp"
#include "stages/sinks/sink.hpp"

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
  // "1" could mean 1 % or all pictures.
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

/// For messages: "the detector", or "the detector of view 'left'".
std::string role_of(const ModelUse& use, const std::string& view) {
  return "the " + std::string(find_task(use.task).model) + (view.empty() ? "" : " of view '" + view + "'");
}

/// Calls `visit` for each model of the chains, with its key ("detect.model") and the view that sets it.
/// The view is empty for a model of the recipe.
template <class Visit>
void each_model(const Config& config, const Visit& visit) {
  const auto of_chain = [&](const Chain& chain, const std::string& view) {
    for (const auto& link : chain.links()) {
      // The view uses the recipe's model, which was visited already.
      if (!view.empty() && link.has_recipe_options) continue;
      for (const ModelUse& use : link.info.models) visit(use, link.info.name + "." + use.option, view);
    }
  };
  of_chain(config.chain, "");
  for (const auto& [view, chain] : config.of_views) of_chain(chain, view);
}

/// The input of a model with windows of these sides: in the order of its axes, or one for all of them.
InputSpec with_window(InputSpec input, const std::vector<int>& sides, const std::string& folder) {
  if (sides.empty()) return input;
  const std::size_t axes = input.depth > 0 ? 3 : 2;
  if (sides.size() != 1 && sides.size() != axes)
    throw UsageError("tiles.roi has " + std::to_string(sides.size()) + " numbers, but the windows of '" + folder +
                     "' have " + std::to_string(axes) + " sides");
  const int first = sides.front(), last = sides.back();
  input.height = sides.size() == 3 ? sides[1] : first;
  input.width = input.columns_first ? first : last;
  if (input.depth > 0) input.depth = input.columns_first ? last : first;
  return input;
}

/// Gives models of windows the size that the recipe names.
/// Throws UsageError if two views name different sizes, or a number of sides that a model does not have.
void set_window_sizes(const Config& config, Packages& packages) {
  std::map<std::string, std::pair<std::vector<int>, std::string>> wanted;  // by folder: the sides, and the view
  const auto of_chain = [&](const Chain& chain, const std::string& view) {
    std::vector<int> window;
    int align = 1;
    bool mirrors_z = false, compares_values = false;
    for (const auto& link : chain.links()) {
      mirrors_z = mirrors_z || link.info.mirrors_z;
      compares_values = compares_values || link.info.compares_values;
      if (!link.info.window.empty()) window = link.info.window;
      align = std::max(align, link.info.window_align);
      for (const ModelUse& use : link.info.models) {
        if (!use.of_windows || use.folder.empty()) continue;
        const InputSpec input = with_window(packages.at(use.folder)->input, window, use.folder);
        if (compares_values && packages.at(use.folder)->scaled_before_resampling)
          throw UsageError("tiles.skip_above and tiles.skip_below compare values of the file, but '" + use.folder +
                           "' scales volumes before it resamples them; leave them out");
        if (mirrors_z && input.depth == 0)
          throw UsageError("tiles.tta has z, but the windows of '" + use.folder + "' are pictures; leave out z");
        const int shortest = std::min({input.width, input.height, input.depth > 0 ? input.depth : input.width});
        if (align > shortest)
          throw UsageError("tiles.align is " + std::to_string(align) + ", but a side of the windows of '" + use.folder +
                           "' has " + std::to_string(shortest) + "; no side may be shorter than tiles.align");
        const auto [known, is_new] = wanted.emplace(use.folder, std::pair(window, view));
        if (!is_new && known->second.first != window)
          throw UsageError("'" + use.folder + "' gets windows of two sizes, of view '" + known->second.second +
                           "' and of view '" + view + "'; name one size, or a copy of the package");
        if (!is_new || window.empty()) continue;
        auto& package = packages.at(use.folder);
        auto resized = std::make_shared<Package>(*package);
        resized->input = input;
        package = std::move(resized);
      }
    }
  };
  of_chain(config.chain, "");
  for (const auto& [view, chain] : config.of_views) of_chain(chain, view);
}

/// Throws UsageError for formats that cannot have what the package finds.
void check_formats(const Chain& chain, const Packages& packages) {
  const auto found = packages.find(chain.options<Semantic>().model);
  if (found == packages.end()) return;
  const Package& package = *found->second;
  const bool volumes = package.input.depth > 0;
  bool has_labels = false;
  const SinkEntry* unfit = nullptr;
  for (const SinkEntry* sink : chain.options<Encode>().sinks()) {
    if (sink->of_labels && package.heatmaps)
      throw UsageError("--format " + sink->name + " writes the class of each pixel, but '" + package.name +
                       "' finds points; leave " + sink->name + " out, or use the recipe configs/points.yaml");
    const bool fits = sink->items == SinkEntry::Items::all || (sink->items == SinkEntry::Items::volumes) == volumes;
    if (!fits && !sink->of_labels)
      throw UsageError("the format " + sink->name + " is for pictures, but '" + package.name +
                       "' takes volumes; leave " + sink->name + " out");
    has_labels = has_labels || (fits && sink->of_labels);
    if (!fits) unfit = sink;
  }
  if (unfit != nullptr && !has_labels)
    throw UsageError("the format " + unfit->name + " writes labels of " + (volumes ? "pictures" : "volumes") +
                     ", but '" + package.name + "' takes " + (volumes ? "volumes" : "pictures") + "; use " +
                     (volumes ? "--format nifti, or the recipe configs/volume.yaml"
                              : "--format png, or the recipe configs/tiled.yaml"));
}

/// For messages: "the format overlay", or "stage 'detect'".
std::string name_of(const ChainLink& reader_of_pixels, const Chain& chain) {
  if (reader_of_pixels.info.name == Encode::name) {
    for (const SinkEntry* sink : chain.options<Encode>().sinks()) {
      if (std::ranges::find(sink->reads, &pixels) != sink->reads.end()) return "the format " + sink->name;
    }
  }
  return "stage '" + reader_of_pixels.info.name + "'";
}

/// Throws UsageError if levels or micrometres are given that windows of the chain cannot have.
void check_levels(const Config& config, const Chain& chain, const Packages& packages) {
  const auto& decode = chain.options<Decode>();
  const bool chosen = decode.level > 0 || decode.mpp > 0;
  for (const ChainLink& link : chain.links()) {
    for (const ModelUse& use : link.info.models) {
      const auto found = packages.find(use.folder);
      if (!link.info.in_parts || found == packages.end()) continue;
      if (chosen && found->second->input.depth > 0)
        throw UsageError("decode.level and decode.mpp are for slides, but '" + use.folder +
                         "' takes volumes; leave them out");
      const bool asked = found->second->mpp > 0 && decode.level < 0;
      const ChainLink* const whole = reader_of_pixels(config.chain);
      if ((!chosen && !asked) || whole == nullptr) continue;
      const std::string reader = name_of(*whole, config.chain);
      throw UsageError(
          (chosen ? "decode.level or decode.mpp is given" : "'" + use.folder + "' asks for micrometres a pixel") +
          ", but " + reader + " needs whole pictures, which are not resampled; leave " + reader +
          " out, or take pixels as they are with decode.level=0");
    }
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
    throw UsageError("'" + *recipe + "' is named as an input, but looks like a recipe: put it before --input");
  }
  const std::string& output = config.output.folder;
  for (const auto& path : input.paths) {
    std::error_code missing;  // a missing folder is not the same folder
    if (!output.empty() && std::filesystem::equivalent(path, output, missing)) {
      throw UsageError("the output folder '" + output + "' is also an input: choose another --output");
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
  // Without rules, all pictures are in default_view. A single view of another name needs a rule for all pictures.
  if (everything && views.front().name == default_view) return spec;
  for (const auto& view : views) spec.views.push_back({view.name, everything ? "**" : view.pattern});
  return spec;
}

void check_models(const Config& config, const SourceSpec& spec) {
  const bool may_have_boxes = std::any_of(spec.inputs.begin(), spec.inputs.end(), may_bring_boxes);
  const auto views = planned_views(config, Views(spec.views).names());
  for (const PlannedView& view : views) {
    const auto& links = view.chain->links();
    // All views have the same stages, so `at` is the same stage in each of them.
    for (std::size_t at = 0; at < links.size(); ++at) {
      for (const ModelUse& use : links[at].info.models) {
        if (!use.folder.empty() || (use.boxes_replace && may_have_boxes)) continue;
        const std::string model(find_task(use.task).model);
        const bool of_all = std::ranges::all_of(views, [&](const PlannedView& other) {
          return std::ranges::all_of(other.chain->links()[at].info.models,
                                     [](const ModelUse& its) { return its.folder.empty(); });
        });
        std::string text = of_all ? "no " + model + " is named" : "view '" + view.name + "' has no " + model;
        text += ": " + use.remedy;
        if (!use.recipe_without.empty()) text += ", such as " + find_builtin_recipe(use.recipe_without);
        throw UsageError(text);
      }
    }
  }
}

Packages read_packages(const Config& config) {
  Packages packages;
  // By option: the first package and the shape of its rows.
  std::map<std::string, std::pair<std::string, std::vector<Side>>> widths;
  each_model(config, [&](const ModelUse& use, const std::string& key, const std::string& view) {
    if (use.folder.empty()) return;
    const std::string origin = view.empty() ? config.model_origins.at(key) : config.views_origin;
    auto& package = packages[use.folder];
    try {
      if (package == nullptr) package = std::make_shared<const Package>(read_package(use.folder));
    } catch (const PackageError& error) {
      throw PackageError(std::string(error.what()) + " (" + role_of(use, view) + ", " + origin + ")");
    }
    if (package->task->name != use.task && package->task->name != use.or_task) {
      throw PackageError("'" + use.folder + "' is named as " + role_of(use, view) + " (" + origin +
                         "), but its model.yaml says task: " + std::string(package->task->name) +
                         "; name a package of task " + std::string(use.task) +
                         (use.or_task.empty() ? std::string() : " or " + std::string(use.or_task)));
    }
    if (use.check) use.check(*package);
    if (!use.one_width) return;
    const auto& shape = package->methods.front().outputs.front().shape;
    // The first dimension is the number of rows.
    const std::vector<Side> row(shape.begin() + 1, shape.end());
    const auto [first, is_new] = widths.emplace(key, std::pair(use.folder, row));
    if (!is_new && first->second.second != row) {
      throw UsageError(key + ": '" + first->second.first + "' and '" + use.folder +
                       "' give rows of different widths, but a side column has one width. Use models of one width in "
                       "all views, or two stages with names of their own");
    }
  });
  set_window_sizes(config, packages);
  check_formats(config.chain, packages);
  check_levels(config, config.chain, packages);
  for (const auto& [view, chain] : config.of_views) {
    check_formats(chain, packages);
    check_levels(config, chain, packages);
  }
  return packages;
}

std::string planned_text(const Package& package) {
  const std::string id = package.name + " " + package.fingerprint.substr(0, 16);
  return package.variant == nullptr ? id : id + " " + package.variant->id();
}

std::vector<PlannedView> planned_views(const Config& config, const std::vector<std::string>& names) {
  std::vector<PlannedView> views;
  for (const auto& name : names) views.push_back({name, &config.chain_of(name)});
  return views;
}

nlohmann::json plan_settings(const Config& config, const ResolvedConfig& resolved, const Packages& packages,
                             const Devices& devices) {
  nlohmann::json plan = *config.results;
  plan["batch_size"] = resolved.batch_size;
  plan["team"] = resolved.team;
  // The plan records the values that were chosen, not the options that led to them, so those groups are removed.
  // It records the input as its source, and packages by their fingerprints.
  plan["device"] = devices.name;
  if (!devices.cpu_level.empty()) {
    plan["cpu_level"] = devices.cpu_level;
    plan["mkl_instructions"] = devices.mkl_instructions;
  }
  plan["precision"] = resolved.precisions.name(packages);
  for (const char* group : {"batch", "threads", "input", "models", "device"}) plan["options"].erase(group);
  each_model(config, [&](const ModelUse& use, const std::string& key, const std::string& view) {
    const auto found = packages.find(use.folder);
    const std::string fingerprint = found == packages.end() ? std::string() : planned_text(*found->second);
    (view.empty() ? plan["packages"] : plan["packages"]["views"][view])[key] = fingerprint;
  });
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
  // lexically_normal() keeps a slash at the end. Both ways to write a folder must give one path.
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
