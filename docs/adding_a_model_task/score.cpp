#include "stages/score.hpp"

#include <algorithm>
#include <cmath>

#include "gpu/device.hpp"
#include "io/files/json_writer.hpp"
#include "stages/model_call.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {
namespace {

constexpr const char* method = "score";

ModelUse use_of(const Score::Options& options) {
  return {.option = "model",
          .folder = options.model,
          .task = "score",
          .calls = {{.method = method}},
          .remedy = "add --set score.model=PACKAGE, or leave 'score' out of the recipe"};
}

}  // namespace

void write_scores(const std::vector<float>& values, JsonWriter& json) {
  json.begin_array();
  for (const float value : values) json.rounded(value, 4);
  json.end_array();
}

void Score::Options::visit(OptionVisitor& v) { v.package("model", model, "package folder of the scorer"); }

StageInfo Score::info(const Options& options) {
  return {.name = name,
          .section = Section::lane,
          .summary = "what a scorer says of a picture",
          .reads = {&model_inputs},
          .writes = {&scores},
          .uses = {},
          .counters = {&scorer_calls},
          .models = {use_of(options)},
          .device = {.waits = 1, .downloads_each = &scorer_calls}};
}

Score::Score(const Options& options, const StageContext& context)
    : context_(context), model_(context.models, use_of(options)) {}

void Score::run(Batch& batch) {
  Device& device = *context_.device;
  HostRows values(device, batch.frames.size(), model_.package().number("values"));
  const std::vector<int> slots = every_slot(batch);
  call_rows(batch, context_,
            {.stage = name,
             .model = model_,
             .method = method,
             .calls = scorer_calls,
             .owners = slots,
             .take = [&](std::span<const TakenRow> rows) { values.take(rows); }});
  device.wait();
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    Frame& frame = *batch.frames[slot];
    if (frame.failed()) continue;
    const auto row = values.row(slot);
    if (!std::ranges::all_of(row, [](float value) { return std::isfinite(value); })) {
      frame.fail(name, Reason::non_finite, "a score is not finite");
      continue;
    }
    frame.columns.set(scores, {row.begin(), row.end()});
  }
}

template StageEntry stage_entry<Score>();

}  // namespace millrace
