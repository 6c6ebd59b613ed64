#include "stages/semantic.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>

#include "gpu/device.hpp"
#include "gpu/ops/blend_windows.hpp"
#include "gpu/ops/cut_windows.hpp"
#include "io/files/json_writer.hpp"
#include "io/results/json_line.hpp"
#include "io/results/rle.hpp"
#include "stages/decode.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {

/// A picture of the batch.
struct Semantic::Item {
  int slot = 0;
  std::int64_t first_row = 0;  // of its windows, among those of the batch
  WindowGrid grid;
  DeviceImage picture;
  WindowSource source;
  BlendSums sums;
  std::shared_ptr<float[]> sums_memory;  // allocated for the first window, freed after the last
  int band = 0;                          // of the latest window
  int finished = 0;                      // rows of the padded picture that have left
  std::shared_ptr<std::byte[]> results;  // on the device, then on the host
  std::size_t pixels = 0;
  bool with_values = false;

  // One block of memory, so that one copy brings it to the host: faults, values, labels.
  std::int32_t* faults() const { return reinterpret_cast<std::int32_t*>(results.get()); }
  float* values() const { return reinterpret_cast<float*>(results.get() + sizeof(float)); }
  std::size_t values_count() const { return with_values ? pixels * static_cast<std::size_t>(sums.classes) : 0; }
  std::uint8_t* labels() const { return reinterpret_cast<std::uint8_t*>(values() + values_count()); }
  std::size_t result_bytes() const { return sizeof(float) * (1 + values_count()) + pixels; }
};

struct Semantic::Work {
  WindowOptions options;
  const float* weights = nullptr;  // on the device
  std::deque<Item> items;
  std::vector<Item*> by_slot;
  std::vector<int> owners;  // slot of each window
  Item& item_of(int row) const { return *by_slot[static_cast<std::size_t>(owners[static_cast<std::size_t>(row)])]; }
};

namespace {

constexpr const char* method = "forward";

ModelUse use_of(const Semantic::Options& options) {
  return {.option = "model",
          .folder = options.model,
          .task = "semantic",
          .calls = {{.method = method, .rows = options.window_batch}},
          .one_shape = true,
          .of_pictures = false,
          .of_windows = true,
          .remedy = "add --set semantic.model=PACKAGE, or leave 'semantic' out of the recipe"};
}

LabelRule rule_of(const Package& package, const Semantic::Options& options) {
  LabelRule rule;
  rule.activation = std::array{Activation::softmax, Activation::sigmoid,
                               Activation::none}[static_cast<std::size_t>(package.number("activation"))];
  rule.thresholded = package.threshold.has_value();
  rule.threshold = package.threshold.value_or(0);
  // Compared before the activation, which is monotonous, so labels need no exponentials.
  if (rule.thresholded && rule.activation == Activation::sigmoid)
    rule.threshold = std::log(rule.threshold / (1 - rule.threshold));
  rule.activate = options.values != "logits";
  return rule;
}

/// The names of labels 0, 1, ...
std::vector<std::string> label_names(const Package& package) {
  std::vector<std::string> names;
  if (package.threshold) names.emplace_back("background");
  names.insert(names.end(), package.classes.begin(), package.classes.end());
  return names;
}

}  // namespace

void write_class_map(const ClassMap& map, JsonWriter& json) {
  const auto pixels = static_cast<std::size_t>(map.width) * static_cast<std::size_t>(map.height);
  const std::span labels(map.labels.get(), pixels);
  std::array<std::int64_t, 256> counts{};
  for (const std::uint8_t label : labels) ++counts[label];
  json.begin_array();
  for (std::size_t label = 0; label < map.names.size(); ++label) {
    if (counts[label] == 0) continue;
    json.begin_object().key("label").value(static_cast<std::int64_t>(label)).key("name").value(map.names[label]);
    json.key("pixels").value(counts[label]);
    if (map.one_slab) {
      std::vector<std::uint8_t> mask(pixels);
      std::ranges::transform(labels, mask.begin(), [&](std::uint8_t one) { return one == label ? 1 : 0; });
      json.key("rle");
      write_rle(rle_encode(mask, map.width, map.height), map.width, map.height, json);
    }
    json.end_object();
  }
  json.end_array();
}

void Semantic::Options::visit(OptionVisitor& v) {
  v.package("model", model, "package folder of the semantic segmenter");
  v.option("window_batch", window_batch, "windows in a model call, up to the maximum of the package", {1, 1024});
  v.option("values", values, "values to keep for sinks: none, probabilities, or logits (blended, without activation)");
  v.on_gpu("window_batch", "16");
}

StageInfo Semantic::info(const Options& options) {
  if (options.values != "none" && options.values != "probabilities" && options.values != "logits")
    throw UsageError("semantic.values is '" + options.values + "'; it must be none, probabilities or logits");
  StageInfo info{.name = name,
                 .section = Section::lane,
                 .summary = "a class for each pixel, from windows",
                 .reads = {&pixels, &tiling},
                 .writes = {&class_map},
                 .uses = {},
                 .counters = {&window_calls, &windows_cut, &label_maps},
                 .models = {use_of(options)},
                 .device = {.uploads = 1, .waits = 1, .downloads_each = &label_maps}};
  if (options.values != "none") info.writes.push_back(&class_values);
  return info;
}

Semantic::Semantic(const Options& options, const StageContext& context)
    : options_(options),
      context_(context),
      model_(context.models, use_of(options)),
      rule_(rule_of(model_.package(), options)) {}

void Semantic::run(Batch& batch) {
  Work work;
  work.by_slot.resize(batch.frames.size());
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    if (!batch.frames[slot]->failed()) begin(*batch.frames[slot], static_cast<int>(slot), work);
  }
  context_.counters[windows_cut] += static_cast<std::int64_t>(work.owners.size());
  call_rows(
      batch, context_,
      {.stage = name,
       .model = model_,
       .method = method,
       .calls = window_calls,
       .owners = work.owners,
       .make = [&](std::span<const CallRow> rows, int count) { return std::vector<Tensor>{cut(rows, count, work)}; },
       .take = [&](std::span<const TakenRow> rows) { take(rows, work); }});
  for (Item& item : work.items) {
    if (!batch.frames[static_cast<std::size_t>(item.slot)]->failed()) download(item);
  }
  context_.device->wait();
  for (const Item& item : work.items) {
    Frame& frame = *batch.frames[static_cast<std::size_t>(item.slot)];
    if (!frame.failed()) deliver(frame, item);
  }
}

// The windows of a picture follow those of the pictures before it, so that calls can have windows of both.
void Semantic::begin(Frame& frame, int slot, Work& work) {
  Device& device = *context_.device;
  const InputSpec& spec = model_.package().input;
  if (work.items.empty()) {  // all pictures of a batch have the options of one view
    work.options = frame.columns.get(tiling);
    work.options.roi = {spec.height, 1, spec.width};
    work.weights = weights_of(work.options);
  }
  Item& item = work.items.emplace_back();
  work.by_slot[static_cast<std::size_t>(slot)] = &item;
  item.slot = slot;
  item.first_row = static_cast<std::int64_t>(work.owners.size());
  item.grid = WindowGrid({frame.info.height, 1, frame.info.width}, work.options);
  const PixelBuffer& raster = frame.columns.get(pixels);
  item.picture = device.upload({raster.data.get(), raster.width, raster.height}, raster.data);
  WindowSource& source = item.source;
  source.values = item.picture.data.get();
  source.item = item.grid.item;
  source.before = item.grid.before;
  source.ring = item.grid.item.rows;
  source.reversed = spec.bgr;
  source.scale = spec.scale;
  std::ranges::copy(spec.mean, source.mean.begin());
  std::ranges::copy(spec.std, source.std.begin());
  item.sums = {nullptr, item.grid.padded(), model_.package().number("channels")};
  item.sums.size.rows = item.grid.roi.rows;
  item.pixels = static_cast<std::size_t>(item.grid.item.values());
  item.with_values = options_.values != "none";
  item.results = device.allocate<std::byte>(item.result_bytes());
  device.zero(item.faults(), sizeof(std::int32_t));
  work.owners.insert(work.owners.end(), static_cast<std::size_t>(item.grid.windows()), slot);
}

Tensor Semantic::cut(std::span<const CallRow> rows, int count, const Work& work) const {
  const Package& package = model_.package();
  const DType type = context_.models.images ? context_.models.images(package) : DType::f32;
  Tensor inputs = context_.device->empty({count, 3, package.input.height, package.input.width}, type);
  std::vector<CutWindow> windows;
  for (const CallRow& row : rows) {
    const Item& item = work.item_of(row.row);
    windows.push_back({row.blank ? nullptr : &item.source, item.grid.start(row.row - item.first_row)});
  }
  cut_windows(*context_.device, windows, work.options.roi, inputs);
  return inputs;
}

void Semantic::take(std::span<const TakenRow> rows, const Work& work) const {
  Device& device = *context_.device;
  std::vector<BlendWindow> pending;
  const Tensor* outputs = nullptr;
  const auto blend = [&] {
    if (!pending.empty()) blend_windows(device, *outputs, work.options.roi, work.weights, pending);
    pending.clear();
  };
  std::vector<Item*> complete;
  for (const TakenRow& row : rows) {
    Item& item = work.item_of(row.row);
    const std::int64_t window = row.row - item.first_row;
    // After a split, the rows of one call come from several calls.
    if (outputs != &row.outputs->front()) blend();
    outputs = &row.outputs->front();
    if (item.sums_memory == nullptr) {
      item.sums_memory = device.allocate<float>(static_cast<std::size_t>(item.sums.values()));
      item.sums.sums = item.sums_memory.get();
      device.zero(item.sums.sums, static_cast<std::size_t>(item.sums.values()) * sizeof(float));
    }
    if (const int band = item.grid.band_of(window); band != item.band) {
      // Rows must leave before the new band takes their place in the ring.
      blend();
      item.band = band;
      finish(std::vector{&item});
    }
    pending.push_back({&item.sums, row.at, item.grid.start(window)});
    if (window + 1 == item.grid.windows()) complete.push_back(&item);
  }
  blend();
  for (Item* const item : complete) item->band = item->grid.bands();
  finish(complete);
  for (Item* const item : complete) item->sums_memory = nullptr;
}

// Finishes the rows that no window from the item's band on touches.
void Semantic::finish(const std::vector<Item*>& items) const {
  std::vector<FinishedRows> rows;
  for (Item* const item : items) {
    const WindowGrid& grid = item->grid;
    const int end = grid.complete_before(item->band);
    const auto shown = static_cast<std::int64_t>(std::max(item->finished - grid.before.rows, 0)) * grid.item.columns;
    rows.push_back({&item->sums, grid.item, grid.before, item->finished, end - item->finished, item->labels() + shown,
                    item->with_values ? item->values() + shown * item->sums.classes : nullptr, item->faults()});
    item->finished = end;
  }
  finish_rows(*context_.device, rule_, rows);
}

// The host's memory is valid after the next wait.
void Semantic::download(Item& item) const {
  Device& device = *context_.device;
  ++context_.counters[label_maps];
  if (device.on_host()) return;
  const auto here = device.mapped<std::byte>(item.result_bytes());
  device.keep(here);  // the copy needs both until the wait, also if a later picture throws
  device.keep(item.results);
  device.download(item.results.get(), here.get(), item.result_bytes());
  item.results = here;
}

void Semantic::deliver(Frame& frame, const Item& item) const {
  if (*item.faults() != 0) {
    return frame.fail(name, Reason::non_finite,
                      "the model gave values that are not finite for " + std::to_string(*item.faults()) + " pixels");
  }
  const Package& package = model_.package();
  const int width = frame.info.width, height = frame.info.height;
  frame.columns.set(class_map,
                    {width, height, {item.results, item.labels()}, label_names(package), height <= item.grid.roi.rows});
  if (item.with_values)
    frame.columns.set(class_values, {width, height, item.sums.classes, {item.results, item.values()}});
}

const float* Semantic::weights_of(const WindowOptions& options) {
  for (const Weights& known : weights_) {
    if (known.of == options) return known.values.get();
  }
  weights_.push_back({options, context_.device->table(window_weights(options))});
  return weights_.back().values.get();
}

template StageEntry stage_entry<Semantic>();

}  // namespace millrace
