#include "run/config.hpp"

#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

#include "run/settings.hpp"

namespace millrace {
namespace {

Chain make_chain(const Settings& settings) {
  try {
    return Chain(settings.stages(), [&](const std::string& stage) { return settings.values(stage); });
  } catch (const UsageError& error) {
    throw settings.located(error);
  }
}

void parse(const Settings& settings, RunOptions& options) {
  options.each([&](auto& group) { group = settings.parse<std::decay_t<decltype(group)>>(); });
}

Settings::Understood understood(Config& config) {
  Settings::Understood groups;
  config.each([&](const auto& group) { groups[group.name] = describe_options(group); });
  for (const auto& link : config.chain.links()) groups[link.info.name] = link.entry->describe(link.options);
  return groups;
}

}  // namespace

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
