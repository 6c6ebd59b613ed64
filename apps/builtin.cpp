#include "apps/builtin.hpp"

#include <algorithm>
#include <array>
#include <filesystem>

#include "apps/run_options.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr const char* origin = "built-in models";
constexpr const char* truth_file = "drawn-scenes.json";  // written by models/demo/scenes.py
constexpr std::array views{"front", "left", "right"};

bool holds_scenes(const fs::path& folder) {
  std::error_code error;  // what cannot be looked at is nobody's drawing
  return fs::exists(folder / truth_file, error);
}

}  // namespace

std::string find_builtin_models() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (const fs::path& folder :
       {program.parent_path().parent_path() / "share" / "millrace" / "models", fs::path(MILLRACE_BUILTIN_MODELS)}) {
    if (fs::exists(folder / "segmenter.pkg" / "model.yaml", error)) return folder.string();
  }
  return {};
}

bool use_builtin_models(Settings& settings, const std::string& folder) {
  const auto models = settings.parse<ModelOptions>();
  const auto& rules = settings.views();
  const bool named = !models.detector.empty() || !models.segmenter.empty() ||
                     std::any_of(rules.begin(), rules.end(), [](const View& view) { return !view.detector.empty(); });
  if (folder.empty() || named) return false;
  settings.set("models.detector", {folder + "/front.pkg"}, origin);
  settings.set("models.segmenter", {folder + "/segmenter.pkg"}, origin);
  if (rules.size() > 1 || !rules.front().pattern.empty()) return true;
  std::vector<View> own;
  for (const std::string view : views) own.push_back({view, view + "/**", folder + "/" + view + ".pkg"});
  own.push_back({rules.front().name, "**", ""});
  settings.set_views(std::move(own), origin);
  return true;
}

bool are_drawn_scenes(const std::vector<std::string>& inputs) {
  return std::all_of(inputs.begin(), inputs.end(), [](const std::string& input) {
    const fs::path path = fs::absolute(input).lexically_normal();
    // A trailing slash makes an empty last part.
    const fs::path named = path.has_filename() ? path : path.parent_path();
    return holds_scenes(named) || holds_scenes(named.parent_path()) || holds_scenes(named.parent_path().parent_path());
  });
}

}  // namespace millrace
