#include "stages/categorize.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "io/files/json_writer.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {
namespace {

// Adds in eight sums, so that compilers use vector registers.
// The order of the additions is fixed, so all CPUs give the same bits.
double product(const float* row, std::span<const float> vector) {
  std::array<double, 8> sums{};
  std::size_t i = 0;
  for (; i + sums.size() <= vector.size(); i += sums.size()) {
    for (std::size_t j = 0; j < sums.size(); ++j) sums[j] += static_cast<double>(row[i + j]) * vector[i + j];
  }
  for (; i < vector.size(); ++i) sums[0] += static_cast<double>(row[i]) * vector[i];
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// What turns the logits of the package's classes into probabilities. Nothing: it has no classes.
std::optional<Activation> activation_of(const Package& package) {
  if (package.matrix) return Activation::softmax;
  if (package.output.contains("activation")) return package.activation();
  return std::nullopt;
}

// Refuses packages before the run starts, in a dry run too.
void check_package(const Package& package, const std::string& own_name, double temperature) {
  const auto activation = activation_of(package);
  if (!activation)
    throw UsageError(own_name + ".model: the package " + package.name +
                     " has no matrix of classes; export it from a classifier, or use the stage 'embed'");
  if (*activation == Activation::none && temperature != 1)
    throw UsageError(own_name + ".temperature divides logits, but the package " + package.name +
                     " gives probabilities (output.activation: none); leave it out");
}

ModelUse use_of(const Categorize::Options& options, const std::string& own_name) {
  return {
      .option = "model",
      .folder = options.model,
      .task = "classify",
      .or_task = "embed",
      .calls = {{.method = "classify", .rows = options.exec_batch}, {.method = "embed", .rows = options.exec_batch}},
      .padded = options.pad,
      .check = [own_name, temperature = options.temperature](
                   const Package& package) { check_package(package, own_name, temperature); },
      .remedy = "add --set " + own_name + ".model=PACKAGE, or leave '" + own_name + "' out of the recipe"};
}

}  // namespace

void write_categories(const Categories& categories, JsonWriter& json) {
  json.begin_object().key("top").begin_array();
  for (const auto& [id, probability] : categories.top) {
    json.begin_array().value(id).value((*categories.names)[static_cast<std::size_t>(id)]);
    json.rounded(probability, 6).end_array();
  }
  json.end_array().end_object();
}

std::vector<double> class_logits(std::span<const float> matrix, bool bias, std::span<const float> vector) {
  const std::size_t classes = matrix.size() / (vector.size() + (bias ? 1 : 0));
  std::vector<double> logits(classes);
  for (std::size_t id = 0; id < classes; ++id) {
    logits[id] = product(matrix.data() + id * vector.size(), vector);
    if (bias) logits[id] += matrix[classes * vector.size() + id];
  }
  return logits;
}

std::vector<double> class_probabilities(std::vector<double> logits, Activation activation, double temperature) {
  if (activation == Activation::none) return logits;
  for (double& logit : logits) logit /= temperature;
  if (activation == Activation::sigmoid) {
    for (double& logit : logits) logit = 1 / (1 + std::exp(-logit));
    return logits;
  }
  // Subtracting the largest logit changes no probability and keeps exp() from overflowing.
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (double& logit : logits) sum += logit = std::exp(logit - largest);
  for (double& logit : logits) logit /= sum;
  return logits;
}

void Categorize::Options::visit(OptionVisitor& v) {
  v.package("model", model, "package folder of a classifier");
  v.option("top", top, "maximum number of classes of a picture; the best are kept", {1, 1000});
  v.option("threshold", threshold, "minimum probability of a class; a picture may have no class above it", {0, 1});
  v.option("temperature", temperature, "divisor of the logits; values above 1 make the probabilities more equal",
           {1e-3, 1e3});
  v.option("exec_batch", exec_batch, "pictures in a model call, up to the maximum of the package; 0: as batch.size",
           {0, 1024});
  v.option(
      "pad", pad,
      "pad the batch of a call to a power of two, so that the model sees few input shapes; a variant pads by itself");
  v.on_gpu("pad", "yes");
}

StageInfo Categorize::info(const Options& options, const Own& own) {
  return {.name = name,
          .section = Section::lane,
          .summary = "the most likely classes of a picture",
          .reads = {&model_inputs},
          .writes = {&own.categories},
          .uses = {},
          .counters = {&categorizer_calls},
          .models = {use_of(options, own.name)},
          .device = {.waits = 1, .downloads_each = &categorizer_calls}};
}

Categorize::Categorize(const Options& options, const StageContext& context, const Own& own)
    : options_(options), context_(context), own_(own), model_(context.models, use_of(options, own.name)) {}

void Categorize::run(Batch& batch) {
  // The host computes the probabilities, so call_pictures() waits for the results.
  const HostRows rows = call_pictures(batch, context_, model_, own_.name, categorizer_calls);
  const auto package = model_.shared_package();
  const auto& matrix = package->matrix;
  const Activation activation = activation_of(*package).value();
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    Frame& frame = *batch.frames[slot];
    // The rows of failed pictures are not valid.
    if (frame.failed()) continue;
    const auto row = rows.row(slot);
    if (!std::ranges::all_of(row, [](float value) { return std::isfinite(value); })) {
      frame.fail(own_.name, Reason::non_finite,
                 std::string(matrix ? "its vector has" : "its classes have") + " numbers that are not finite");
      continue;
    }
    const auto probabilities =
        class_probabilities(matrix ? class_logits(*matrix->numbers, matrix->bias, embedding(*package, row))
                                   : std::vector<double>(row.begin(), row.end()),
                            activation, options_.temperature);
    std::vector<int> order(probabilities.size());
    std::iota(order.begin(), order.end(), 0);
    const auto probability = [&](int id) { return probabilities[static_cast<std::size_t>(id)]; };
    const auto kept = std::min(order.size(), static_cast<std::size_t>(options_.top));
    std::ranges::partial_sort(order, order.begin() + static_cast<std::ptrdiff_t>(kept), [&](int a, int b) {
      // partial_sort is not stable. The number decides between equals, so the same plan gives the same line.
      return probability(a) != probability(b) ? probability(a) > probability(b) : a < b;
    });
    // The pointer to the names owns the package, so the names live as long as the field.
    Categories categories{{}, {package, &package->classes}};
    // `order` is sorted, so the first class below the threshold ends the list.
    for (std::size_t i = 0; i < kept && probability(order[i]) >= options_.threshold; ++i)
      categories.top.emplace_back(order[i], probability(order[i]));
    frame.columns.set(own_.categories, std::move(categories));
  }
}

template StageEntry stage_entry<Categorize>();

}  // namespace millrace
