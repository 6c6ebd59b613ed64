#include "run/config.hpp"

#include <map>
#include <type_traits>
#include <utility>

#include "base/json.hpp"
#include "base/nearest.hpp"
#include "base/text.hpp"
#include "io/reducers/reducer.hpp"
#include "run/settings.hpp"
#include "stages/registry.hpp"

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

// Two rules for the same view must not give an option different values.
void check_rules(const std::vector<View>& rules) {
  std::map<std::string, std::vector<std::string>> seen;
  for (const View& rule : rules) {
    for (const auto& [stage, options] : rule.options) {
      for (const auto& [option, values] : options) {
        const std::string key = stage + "." + option;
        const auto [first, is_new] = seen.emplace(rule.name + "\n" + key, values);
        if (is_new || first->second == values) continue;
        const auto text = [](const std::vector<std::string>& list) { return list.empty() ? "" : list.front(); };
        throw UsageError("view '" + rule.name + "' has two values of " + key + ", '" + text(first->second) + "' and '" +
                         text(values) + "'; give the second rule another name");
      }
    }
  }
}

std::map<std::string, Chain> make_view_chains(const Settings& settings, const Chain& chain) {
  check_rules(settings.views());
  std::map<std::string, Chain> chains;
  for (const View& rule : settings.views()) {
    // A view can have several rules. values() merges their options, so the first rule makes the chain for all of them.
    if (rule.options.empty() || chains.count(rule.name) > 0) continue;
    try {
      chains.emplace(rule.name,
                     chain.for_view([&](const std::string& stage) { return settings.differs(stage, rule.name); },
                                    [&](const std::string& stage) { return settings.values(stage, rule.name); }));
    } catch (const UsageError& error) {
      throw UsageError(settings.views_origin() + ": view '" + rule.name + "': " + error.what());
    }
  }
  return chains;
}

Settings::Understood understood(const Chain& chain) {
  Settings::Understood groups;
  for (const auto& link : chain.links()) groups[link.info.name] = link.entry->describe(link.options);
  return groups;
}

void parse(const Settings& settings, RunOptions& options) {
  options.each([&](auto& group) { group = settings.parse<std::decay_t<decltype(group)>>(); });
  for (const auto& name : options.output.reduce) {
    if (find_reducer(name) != nullptr) continue;
    const auto names = reducer_names();
    throw settings.located(
        UsageError("output.reduce takes " + listed(names) + ", not '" + name + "'" + did_you_mean(name, names)));
  }
}

}  // namespace

void OutputOptions::visit(OptionVisitor& v) {
  v.option("folder", folder, "folder for segments, plan and reports", Affects::run);
  v.option("reduce", reduce,
           "summaries to make in reduced/ when the run has finished (" + listed(reducer_names()) + ")", Affects::run);
}

void check_values(const Settings& settings) {
  RunOptions options;
  parse(settings, options);
  for (const RecipeStage& stage : settings.stages()) {
    try {
      (void)find_stage(stage.stage).parse(settings.values(stage.name), stage.name);
    } catch (const UsageError& error) {
      throw settings.located(error);
    }
  }
  settings.check_used();
}

Config parse_config(const Settings& settings) {
  RunOptions options;
  parse(settings, options);  // first, so that a wrong value is reported before stages in a wrong order
  Config config(make_chain(settings));
  static_cast<RunOptions&>(config) = std::move(options);
  config.views = settings.views();
  config.of_views = make_view_chains(settings, config.chain);
  for (const auto& link : config.chain.links()) {
    for (const ModelUse& model : link.info.models) {
      const std::string key = link.info.name + "." + model.option;
      config.model_origins[key] = settings.origin(key);
    }
  }
  config.views_origin = settings.views_origin();
  config.notes = settings.notes();
  config.text = settings.print();
  settings.check_used();
  Settings::Understood groups = understood(config.chain);
  config.each([&](const auto& group) { groups[group.name] = describe_options(group); });
  std::map<std::string, Settings::Understood> of_views;
  for (const auto& [view, chain] : config.of_views) of_views[view] = understood(chain);
  config.results = std::make_shared<const nlohmann::json>(settings.results(groups, of_views));
  return config;
}

}  // namespace millrace
