#include "run/config.hpp"

#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "base/nearest.hpp"
#include "base/text.hpp"
#include "io/reducers/reducer.hpp"
#include "run/settings.hpp"

namespace millrace {
namespace {

std::vector<std::string> reducer_names() {
  std::vector<std::string> names;
  for (const auto& reducer : reducer_table()) names.push_back(reducer.name);
  return names;
}

Chain make_chain(const Settings& settings) {
  try {
    return Chain(settings.stages(), [&](const std::string& stage) { return settings.values(stage); });
  } catch (const UsageError& error) {
    throw settings.located(error);
  }
}

void parse(const Settings& settings, RunOptions& options) {
  options.each([&](auto& group) { group = settings.parse<std::decay_t<decltype(group)>>(); });
  for (const auto& name : options.output.reduce) {
    if (find_reducer(name) != nullptr) continue;
    const auto names = reducer_names();
    throw settings.located(
        UsageError("output.reduce knows " + listed(names) + ", not '" + name + "'" + did_you_mean(name, names)));
  }
}

Settings::Understood understood(Config& config) {
  Settings::Understood groups;
  config.each([&](const auto& group) { groups[group.name] = describe_options(group); });
  for (const auto& link : config.chain.links()) groups[link.info.name] = link.entry->describe(link.options);
  return groups;
}

}  // namespace

void OutputOptions::visit(OptionVisitor& v) {
  v.option("folder", folder, "where segments, plan and reports go", Affects::run);
  v.option("reduce", reduce, "when the run has finished, into reduced/: " + listed(reducer_names()), Affects::run);
}

void check_values(const Settings& settings) {
  RunOptions options;
  parse(settings, options);
  for (const auto& stage : settings.stages()) {
    try {
      (void)find_stage(stage).parse(settings.values(stage));
    } catch (const UsageError& error) {
      throw settings.located(error);
    }
  }
  settings.check_used();
}

Config parse_config(const Settings& settings) {
  RunOptions options;
  parse(settings, options);  // first, so that a wrong value is named before stages that cannot follow each other
  Config config(make_chain(settings));
  static_cast<RunOptions&>(config) = std::move(options);
  config.views = settings.views();
  config.detector_origin = settings.origin("models.detector");
  config.segmenter_origin = settings.origin("models.segmenter");
  config.views_origin = settings.views_origin();
  config.text = settings.print();
  settings.check_used();
  config.results = std::make_shared<const nlohmann::json>(settings.results(understood(config)));
  return config;
}

}  // namespace millrace
