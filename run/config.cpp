#include "run/config.hpp"

#include <nlohmann/json.hpp>

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

Settings::Understood understood(const Config& config) {
  Settings::Understood groups;
  const auto add = [&](const auto& options) { groups[options.name] = describe_options(options); };
  add(config.input);
  add(config.output);
  add(config.models);
  add(config.device);
  add(config.threads);
  add(config.batch);
  add(config.gate);
  add(config.read);
  add(config.trace);
  for (const auto& link : config.chain.links()) groups[link.info.name] = link.entry->describe(link.options);
  return groups;
}

}  // namespace

void check_values(const Settings& settings) {
  (void)settings.parse<InputOptions>();
  (void)settings.parse<OutputOptions>();
  (void)settings.parse<ModelOptions>();
  (void)settings.parse<DeviceOptions>();
  (void)settings.parse<ThreadOptions>();
  (void)settings.parse<BatchOptions>();
  (void)settings.parse<GateOptions>();
  (void)settings.parse<ReadOptions>();
  (void)settings.parse<TraceOptions>();
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
  Config config{.input = settings.parse<InputOptions>(),
                .output = settings.parse<OutputOptions>(),
                .models = settings.parse<ModelOptions>(),
                .device = settings.parse<DeviceOptions>(),
                .threads = settings.parse<ThreadOptions>(),
                .batch = settings.parse<BatchOptions>(),
                .gate = settings.parse<GateOptions>(),
                .read = settings.parse<ReadOptions>(),
                .trace = settings.parse<TraceOptions>(),
                .views = settings.views(),
                .chain = make_chain(settings),
                .detector_origin = settings.origin("models.detector"),
                .segmenter_origin = settings.origin("models.segmenter"),
                .views_origin = settings.views_origin(),
                .text = settings.print()};
  settings.check_used();
  config.results = std::make_shared<const nlohmann::json>(settings.results(understood(config)));
  return config;
}

}  // namespace millrace
