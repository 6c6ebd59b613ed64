#include "stages/regress.hpp"

#include <algorithm>
#include <cmath>

#include "io/files/json_writer.hpp"
#include "stages/model_call.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {
namespace {

ModelUse use_of(const Regress::Options& options, const std::string& own_name) {
  return {.option = "model",
          .folder = options.model,
          .task = "regress",
          .calls = {{.method = "regress", .rows = options.exec_batch}},
          .padded = options.pad,
          .remedy = "add --set " + own_name + ".model=PACKAGE, or leave '" + own_name + "' out of the recipe"};
}

}  // namespace

void write_regressed(const Regressed& regressed, JsonWriter& json) {
  json.begin_object();
  for (std::size_t i = 0; i < regressed.values.size(); ++i) json.key((*regressed.names)[i]).value(regressed.values[i]);
  json.end_object();
}

void Regress::Options::visit(OptionVisitor& v) {
  v.package("model", model, "package folder of the regressor");
  v.option("exec_batch", exec_batch, "pictures in a model call, up to the maximum of the package; 0: as batch.size",
           {0, 1024});
  v.option(
      "pad", pad,
      "pad the batch of a call to a power of two, so that the model sees few input shapes; a variant pads by itself");
  v.on_gpu("pad", "yes");
}

StageInfo Regress::info(const Options& options, const Own& own) {
  return {.name = name,
          .section = Section::lane,
          .summary = "numbers for a picture, such as an age",
          .reads = {&model_inputs},
          .writes = {&own.values},
          .uses = {},
          .counters = {&regressor_calls},
          .models = {use_of(options, own.name)},
          .device = {.waits = 1, .downloads_each = &regressor_calls}};
}

Regress::Regress(const Options& options, const StageContext& context, const Own& own)
    : context_(context), own_(own), model_(context.models, use_of(options, own.name)) {}

void Regress::run(Batch& batch) {
  const HostRows rows = call_pictures(batch, context_, model_, own_.name, regressor_calls);
  const auto package = model_.shared_package();
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    Frame& frame = *batch.frames[slot];
    // The rows of failed pictures are not valid.
    if (frame.failed()) continue;
    const auto values = rows.row(slot);
    const auto bad = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
    if (bad != values.end()) {
      const auto at = static_cast<std::size_t>(bad - values.begin());
      frame.fail(own_.name, Reason::non_finite,
                 "its value '" + package->value_names[at] + "' is " + std::to_string(*bad) + ", which is not finite");
      continue;
    }
    // The pointer to the names owns the package, so the names live as long as the field.
    frame.columns.set(own_.values, {{values.begin(), values.end()}, {package, &package->value_names}});
  }
}

template StageEntry stage_entry<Regress>();

}  // namespace millrace
