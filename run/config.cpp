#include "run/config.hpp"

#include <nlohmann/json.hpp>

#include "run/settings.hpp"

namespace millrace {

Config parse_config(const Settings& settings) {
  settings.check();
  return {.input = settings.parse<InputOptions>(),
          .output = settings.parse<OutputOptions>(),
          .models = settings.parse<ModelOptions>(),
          .device = settings.parse<DeviceOptions>(),
          .threads = settings.parse<ThreadOptions>(),
          .batch = settings.parse<BatchOptions>(),
          .gate = settings.parse<GateOptions>(),
          .read = settings.parse<ReadOptions>(),
          .trace = settings.parse<TraceOptions>(),
          .views = settings.views(),
          .chain = Chain(settings.stages(), [&](const std::string& stage) { return settings.values(stage); }),
          .detector_origin = settings.origin("models.detector"),
          .segmenter_origin = settings.origin("models.segmenter"),
          .views_origin = settings.views_origin(),
          .text = settings.print(),
          .results = std::make_shared<const nlohmann::json>(settings.results())};
}

}  // namespace millrace
