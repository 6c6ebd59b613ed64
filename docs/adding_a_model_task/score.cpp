#include "stages/score.hpp"

#include <algorithm>
#include <cmath>

#include "io/files/json_writer.hpp"
#include "stages/model_call.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {
namespace {

ModelUse use_of(const Score::Options& options) {
  return {.option = "model",
          .folder = options.model,
          .task = "score",
          .calls = {{.method = "score"}},
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
  const HostRows values = call_pictures(batch, context_, model_, name, scorer_calls);
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
