#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "base/json.hpp"
#include "base/text.hpp"
#include "io/reducers/reducer_entry.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;
using ByName = std::map<std::string, std::int64_t>;
using ByView = std::map<std::string, ByName>;

constexpr std::size_t max_messages = 5;  // classes in a sentence

std::string class_name(const std::string& name, std::int64_t number) {
  return name.empty() ? "class " + std::to_string(number) : name;
}

/// Whether a value is that of a stage that sorts pictures into classes: {"top": [[number, name, probability], ...]}.
bool is_top(const Json& value) {
  if (!value.is_object() || !value.contains("top") || !value["top"].is_array()) return false;
  return std::ranges::all_of(value["top"], [](const Json& one) {
    return one.is_array() && one.size() == 3 && one[0].is_number_integer() && one[1].is_string() && one[2].is_number();
  });
}

/// "5 minibus, 2 none": the highest count first, equal counts by name.
std::string sentence(const ByName& counts) {
  std::vector<std::pair<std::string, std::int64_t>> sorted(counts.begin(), counts.end());
  std::ranges::stable_sort(sorted, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (std::size_t i = 0; i < std::min(sorted.size(), max_messages); ++i)
    text += (i == 0 ? "" : ", ") + grouped(sorted[i].second) + " " + sorted[i].first;
  if (sorted.size() > max_messages) {
    const std::size_t others = sorted.size() - max_messages;
    text += " and " + std::to_string(others) + (others == 1 ? " other name" : " other names");
  }
  return text;
}

}  // namespace

/// Counts by class and view: pictures by the best class that a stage gave them, objects by their class.
/// A picture to which the stage gave no class counts as "none".
/// A stage is recognised by the form of its value, so every instance is counted under its own key.
class CategoryCounts {
 public:
  static ReducerEntry entry() {
    return {"categories", "pictures and objects by class and view", ".json", [](const CommittedLines& lines) {
              CategoryCounts counts;
              lines.for_each([&](const Json& line) { counts.add(line); });
              return counts.take();
            }};
  }

 private:
  void add(const Json& line) {
    const std::string view = line.at("view");
    if (line.at("state") != "ok") {
      ++failed_[view];
      return;
    }
    ++pictures_[view];
    for (const auto& [key, value] : line.items()) {
      if (!is_top(value)) continue;
      const Json& top = value["top"];
      ++stages_[key][view][top.empty() ? "none" : class_name(top[0][1], top[0][0])];
    }
    for (const Json& object : line.value("objects", Json::array()))
      ++objects_[view][class_name(object.value("name", std::string()), object.at("class"))];
  }

  Reduced take() const {
    const Json json{{"pictures", pictures_}, {"failed", failed_}, {"categories", stages_}, {"objects", objects_}};
    Reduced reduced{json.dump(2) + "\n", {}};
    for (const auto& [stage, views] : stages_) {
      for (const auto& [view, counts] : views)
        reduced.summary.push_back(stage + ", view " + view + ": " + sentence(counts));
    }
    for (const auto& [view, counts] : objects_)
      reduced.summary.push_back("objects, view " + view + ": " + sentence(counts));
    return reduced;
  }

  ByName pictures_, failed_;              // by view
  std::map<std::string, ByView> stages_;  // by key of the line
  ByView objects_;
};

template ReducerEntry reducer_entry<CategoryCounts>();

}  // namespace millrace
