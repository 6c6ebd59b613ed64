#include "run/builtin.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "run/run_options.hpp"
#include "run/setup.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* origin = "built-in models";
constexpr const char* truth_file = "drawn-scenes.json";  // written by models/demo/scenes.py
constexpr std::array views{"front", "left", "right"};
constexpr const char* score = "0.5";  // 91 % of objects found, 90 % of results right: models/demo/README.md

/// The folder of drawn scenes that an input is, or that contains it at most two folders deep. Empty if there is none.
fs::path scenes_of(const std::string& input) {
  std::error_code error;  // a path that cannot be read is no folder of drawn scenes
  const fs::path path = fs::absolute(input, error).lexically_normal();
  // With a trailing slash, the last part of the path is empty.
  fs::path folder = path.has_filename() ? path : path.parent_path();
  for (int up = 0; up < 3 && !error; ++up, folder = folder.parent_path()) {
    if (fs::exists(folder / truth_file, error)) return folder;
  }
  return {};
}

/// The view of these inputs. Empty unless all are drawn scenes of the same view.
std::string common_view(const std::vector<std::string>& inputs) {
  std::string common;
  for (const std::string& input : inputs) {
    const fs::path scenes = scenes_of(input);
    if (scenes.empty()) return {};
    std::error_code error;
    const std::string view = *fs::absolute(input, error).lexically_normal().lexically_relative(scenes).begin();
    if (std::find(views.begin(), views.end(), view) == views.end() || (!common.empty() && view != common)) return {};
    common = view;
  }
  return common;
}

}  // namespace

std::string find_data(const char* shared, const char* in_sources, const std::string& file) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (const fs::path& folder :
       {program.parent_path().parent_path() / "share" / "millrace" / shared, fs::path(MILLRACE_SOURCES) / in_sources}) {
    if (fs::exists(folder / file, error)) return folder.string();
  }
  return {};
}

std::string find_builtin_models() { return find_data("models", "models/builtin", "segmenter.pkg/model.yaml"); }

std::string find_builtin_recipe(const std::string& name) {
  const std::string folder = find_data("configs", "configs", name);
  return folder.empty() ? name : folder + "/" + name;
}

bool use_builtin_models(Settings& settings, const std::string& folder) {
  const auto& rules = settings.views();
  // One named model keeps all built-in ones out, so that no result is from a model that the user did not mean.
  const bool named =
      !settings.text("detect.model").empty() || !settings.text("segment.model").empty() ||
      std::any_of(rules.begin(), rules.end(), [](const View& view) {
        return std::ranges::any_of(view.options, [](const auto& of_stage) {
          return (of_stage.first == "detect" || of_stage.first == "segment") && of_stage.second.count("model") > 0;
        });
      });
  const auto inputs = settings.written("input.paths");
  const bool segments = settings.runs("segment"),
             detects = settings.runs("detect") && std::none_of(inputs.begin(), inputs.end(), may_bring_boxes);
  if (folder.empty() || named || !(segments || detects)) return false;
  if (segments) settings.set("segment.model", {folder + "/segmenter.pkg"}, origin);
  if (!detects) return true;
  settings.set("detect.model", {folder + "/front.pkg"}, origin);
  if (settings.values("detect").count("conf") == 0) settings.set("detect.conf", {score}, origin);
  if (rules.size() > 1 || !rules.front().pattern.empty()) return true;  // the recipe has views
  const auto of_view = [&](const std::string& view, const std::string& pattern) {
    View own{view, pattern, rules.front().options};
    own.options["detect"]["model"] = {folder + "/" + view + ".pkg"};
    return own;
  };
  // If the input is the folder of a view or inside it, the paths of the plan do not contain the view's name.
  if (const std::string view = common_view(inputs); !view.empty()) {
    settings.set_views({of_view(view, "")}, origin);
    return true;
  }
  std::vector<View> own;
  for (const std::string view : views) own.push_back(of_view(view, "**/" + view + "/**"));
  // All other pictures keep the recipe's view, with the front detector.
  own.push_back({rules.front().name, "**", rules.front().options});
  settings.set_views(std::move(own), origin);
  return true;
}

bool are_drawn_scenes(const std::vector<std::string>& inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [](const std::string& input) { return !scenes_of(input).empty(); });
}

}  // namespace millrace
