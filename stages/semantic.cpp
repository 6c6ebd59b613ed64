#include "stages/semantic.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "io/files/files.hpp"
#include "io/sinks/label_tiff.hpp"
#include "stages/decode.hpp"
#include "stages/holes.hpp"
#include "stages/scaling.hpp"
#include "stages/semantic_item.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {
namespace {

constexpr const char* method = "forward";

void check_heatmaps(const Package& package, int instances, const std::string& values) {
  if (!package.heatmaps) return;
  if (instances > 0)
    throw UsageError("semantic.instances lists parts of classes, but '" + package.name +
                     "' finds points; leave it out, or set semantic.points");
  if (values == "logits")
    throw UsageError("semantic.values is logits, but '" + package.name +
                     "' finds points in values after the activation; use probabilities");
}

ModelUse use_of(const Semantic::Options& options) {
  return {.option = "model",
          .folder = options.model,
          .task = "semantic",
          .calls = {{.method = method, .rows = options.window_batch}},
          .one_shape = true,
          .of_pictures = false,
          .of_windows = true,
          .check = [instances = options.instances,
                    values = options.values](const Package& package) { check_heatmaps(package, instances, values); },
          .remedy = "add --set semantic.model=PACKAGE, or leave 'semantic' out of the recipe"};
}

LabelRule rule_of(const Package& package, const Semantic::Options& options) {
  LabelRule rule;
  rule.activation = package.activation();
  rule.thresholded = package.threshold.has_value();
  rule.threshold = package.threshold.value_or(0);
  // Compared before the activation, which is monotonous, so labels need no exponentials.
  if (rule.thresholded && rule.activation == Activation::sigmoid)
    rule.threshold = std::log(rule.threshold / (1 - rule.threshold));
  rule.activate = options.values != "logits";
  return rule;
}

// A picture with fewer windows takes about as long as other pictures, so a kill may cost all of it.
constexpr std::int64_t windows_without_slabs = 64;
constexpr std::int64_t bytes_of_point = 72;  // in the finder, and in its results
constexpr const char* unfinished_folder = "unfinished";

/// The rows of the picture that windows of one call touch, at most. Its windows are rows of the batch from `first` on.
int ring_rows(const WindowGrid& grid, std::int64_t first, int ways, int in_call) {
  int most = 0;
  for (std::int64_t row = 0; row < grid.windows() * ways;) {
    const std::int64_t end = std::min(((first + row) / in_call + 1) * in_call - first, grid.windows() * ways);
    most = std::max(most, grid.start((end - 1) / ways).rows + grid.roi.rows - grid.start(row / ways).rows);
    row = end;
  }
  return std::min(most, grid.item.rows);
}

/// All options, as text.
std::string key_of(const WindowOptions& options) {
  std::string text;
  for (const int number :
       {options.roi.rows, options.roi.lines, options.roi.columns, options.align, static_cast<int>(options.weights)})
    text += std::to_string(number) + " ";
  return text + std::to_string(options.overlap) + " " + std::to_string(options.sigma);
}

/// The shape of `count` windows with `channels` values for each place.
std::vector<std::int64_t> shape_of(const InputSpec& spec, std::int64_t count, std::int64_t channels) {
  if (spec.depth == 0) return {count, channels, spec.height, spec.width};
  if (spec.columns_first) return {count, channels, spec.width, spec.height, spec.depth};
  return {count, channels, spec.depth, spec.height, spec.width};
}

/// Whether all pixels of an RGB picture have three equal values.
bool is_grey(std::span<const std::uint8_t> rgb) {
  for (std::size_t i = 0; i + 2 < rgb.size(); i += 3) {
    if (rgb[i] != rgb[i + 1] || rgb[i] != rgb[i + 2]) return false;
  }
  return true;
}

/// The size of a frame's picture or volume.
Extent size_of(const Frame& frame) {
  return frame.region != nullptr ? frame.region->info().size : Extent{frame.info.height, 1, frame.info.width};
}

}  // namespace

void Semantic::Options::visit(OptionVisitor& v) {
  v.package("model", model, "package folder of the semantic segmenter");
  v.option("window_batch", window_batch, "windows in a model call, up to the maximum of the package", {1, 1024});
  v.option("values", values, "values to keep for sinks: none, probabilities, or logits (blended, without activation)");
  v.option("instances", instances, "list the connected parts of each class with at least so many pixels; 0: list none",
           {0, 1e9});
  v.option("points", points, "of packages that give heatmaps: the maximum number of points of each channel", {1, 1e6});
  v.option("point_threshold", point_threshold, "of packages that give heatmaps: minimum value of a point",
           {-3e38, 3e38});
  v.on_gpu("window_batch", "16");
}

StageInfo Semantic::info(const Options& options) {
  if (options.values != "none" && options.values != "probabilities" && options.values != "logits")
    throw UsageError("semantic.values is '" + options.values + "'; it must be none, probabilities or logits");
  StageInfo info{
      .name = name,
      .section = Section::lane,
      .summary = "a class for each pixel or voxel, from windows",
      .reads = {&pixels, &tiling},
      .writes = {&class_map, &points_found, &hole_pixels},
      .uses = {},
      .counters = {&window_calls, &windows_cut, &windows_skipped, &label_maps, &slabs_in, &slabs_out},
      .models = {use_of(options)},
      .device = {
          .uploads = 1, .waits = 1, .downloads_each = &label_maps, .slabs_in = &slabs_in, .slabs_out = &slabs_out}};
  info.in_parts = true;
  if (options.values != "none") info.writes.push_back(&class_values);
  return info;
}

Semantic::Semantic(const Options& options, const StageContext& context)
    : options_(options),
      context_(context),
      model_(context.models, use_of(options)),
      rule_(rule_of(model_.package(), options)),
      heatmaps_(model_.package().heatmaps) {}

void Semantic::run(Batch& batch) {
  WindowsInWork windows(context_.counters.windows);
  std::deque<Work> works;  // volumes that lie in the same way share calls
  for (std::size_t slot = 0; slot < batch.frames.size(); ++slot) {
    Frame& frame = *batch.frames[slot];
    windows.add_picture(frame.retried);
    if (frame.failed()) continue;
    const auto layout = layout_of(frame);
    if (!layout) continue;
    const auto known = std::ranges::find(works, *layout, &Work::layout);
    Work& work = known != works.end() ? *known : works.emplace_back(windows, *layout, batch.frames.size());
    begin(frame, static_cast<int>(slot), work);
  }
  for (Work& work : works) {
    call_rows(batch, context_,
              {.stage = name,
               .model = model_,
               .method = method,
               .calls = window_calls,
               .owners = work.owners,
               .wanted = [&](int row) { return needs_model(row, work); },
               .make = [&](std::span<const CallRow> rows, int count,
                           bool /*apart*/) { return std::vector<Tensor>{cut(rows, count, work)}; },
               .take = [&](std::span<const TakenRow> rows) { take(rows, work); }});
    for (Item& item : work.items) {
      if (!item.frame->failed()) end(item);
      if (!item.frame->failed() && !item.by_slabs) download(item);
    }
  }
  context_.device->wait();
  for (Work& work : works) {
    for (Item& item : work.items) {
      if (!item.frame->failed()) deliver(item);
    }
  }
}

// Nothing if the frame fails, since the model cannot take it.
std::optional<WindowLayout> Semantic::layout_of(Frame& frame) const {
  const Package& package = model_.package();
  if (is_volume(frame) != (package.input.depth > 0)) {
    frame.fail(name, Reason::unsupported_format,
               is_volume(frame) ? "a volume, but the windows of the model are pictures"
                                : "a picture, but the windows of the model are volumes");
    return {};
  }
  if (frame.region == nullptr && !check_raster(frame)) return {};
  auto layout = window_layout(package, frame.region != nullptr ? frame.region->info().directions : Directions{},
                              frame.columns.get(tiling).mirrored);
  if (!layout)
    frame.fail(name, Reason::unsupported_format,
               "this volume does not say how it lies, but the model needs the orientation " + package.orientation +
                   "; correct its header");
  return layout;
}

std::int64_t Semantic::bytes(const Frame& frame) const {
  if (is_volume(frame) != (model_.package().input.depth > 0)) return 0;  // run() fails it
  const auto layout =
      window_layout(model_.package(), frame.region != nullptr ? frame.region->info().directions : Directions{});
  if (!layout) return 0;  // run() fails it, too
  const Extent roi = layout->roi, item = size_of(frame);
  const std::int64_t channels = model_.package().number("channels");
  const Extent padded{item.rows, std::max(item.lines, roi.lines), std::max(item.columns, roi.columns)};
  const std::int64_t sums =
      roi.rows * padded.row_values() * (channels + 1) * std::int64_t{sizeof(float)} +
      scaling_bytes(model_.package(),
                    item.row_values() * (frame.region != nullptr ? frame.region->info().channels : 3));
  const bool keeps_values = options_.values != "none";
  const std::int64_t values = keeps_values || heatmaps_ ? channels * std::int64_t{sizeof(float)} : 0;
  // Three rows are those of the finder.
  const std::int64_t slab =
      roi.rows * item.row_values() * (1 + values) + (heatmaps_ ? 3 * item.row_values() * values : 0);
  const std::int64_t points =
      heatmaps_ ? channels * std::min<std::int64_t>(options_.points, item.values()) * bytes_of_point : 0;
  if (frame.region == nullptr)
    return sums + points + (heatmaps_ && !keeps_values ? slab : item.values() * (1 + values));
  // The options of `tiles` are not known yet. With any overlap, a call does not need more bands than these.
  const std::int64_t across =
      std::int64_t{(padded.lines + roi.lines - 1) / roi.lines} * ((padded.columns + roi.columns - 1) / roi.columns);
  const std::int64_t in_call = model_.maximum(method), bands = in_call == 1 ? 1 : 2 + (in_call - 2) / across;
  const std::int64_t results = keeps_values ? item.values() * (1 + values) : slab;
  // Labels of a picture that go back may be wider than its sums: a row of tiles, or all of one slab and its run lengths.
  const auto& back = frame.region->info().file_size;
  const std::int64_t wider =
      back && !is_volume(frame) && !heatmaps_
          ? std::int64_t{back->columns} * std::max(label_tile, 2 * std::min(back->rows, roi.rows))
          : 0;
  return sums + points + results + wider +
         std::min<std::int64_t>(item.rows, (bands + 1) * roi.rows) * frame.region->info().row_bytes();
}

// The windows of a picture follow those of the pictures before it, so that calls can have windows of both.
void Semantic::begin(Frame& frame, int slot, Work& work) {
  if (work.items.empty()) {  // all pictures of a batch have the options of one view
    work.options = frame.columns.get(tiling).windows;
    work.options.roi = work.layout.roi;
    work.weights = weights_of(work.options);  // which do not depend on the direction
    work.options.from_end = work.layout.reversed;
  }
  Item& item = work.items.emplace_back();
  work.by_slot[static_cast<std::size_t>(slot)] = &item;
  item.frame = &frame;
  item.alone = work.by_slot.size() == 1;
  item.first_row = static_cast<std::int64_t>(work.owners.size());
  item.grid = WindowGrid(size_of(frame), work.options);
  item.sums = {nullptr, item.grid.padded(), model_.package().number("channels")};
  item.sums.size.rows = item.grid.roi.rows;
  begin_results(item, frame, work.options);
  item.passed = item.first_window;
  try {
    begin_source(item, frame, work.ways());
  } catch (const PictureError& error) {
    return frame.fail(name, error.reason(), error.what());
  }
  work.owners.insert(work.owners.end(), static_cast<std::size_t>(item.grid.windows() * work.ways()), slot);
  work.windows.add(item.grid.windows() - item.first_window);
  context_.counters[windows_cut] += item.grid.windows() - item.first_window;
}

// A picture that was decoded whole is RGB, also if its file is grey or has more channels.
bool Semantic::check_raster(Frame& frame) const {
  const std::size_t channels = model_.package().channels.size();
  if (channels == 3) return true;
  const PixelBuffer& raster = frame.columns.get(pixels);
  const std::span all(raster.data.get(), std::size_t{3} * static_cast<std::size_t>(raster.width) *
                                             static_cast<std::size_t>(raster.height));
  if (channels > 1) {
    frame.fail(name, Reason::unsupported_format,
               "a picture that is read as RGB, but the model takes " + std::to_string(channels) +
                   " channels; convert it to a TIFF with these channels");
  } else if (!is_grey(all)) {
    frame.fail(name, Reason::unsupported_format,
               "a picture with colours, but the model takes one channel; convert it to grey");
  }
  return !frame.failed();
}

void Semantic::begin_results(Item& item, Frame& frame, const WindowOptions& options) const {
  Device& device = *context_.device;
  const WindowGrid& grid = item.grid;
  const bool keeps_values = options_.values != "none";
  item.with_values = keeps_values || heatmaps_;
  const bool large = heatmaps_ ? grid.item.rows > grid.roi.rows : grid.windows() > windows_without_slabs;
  item.by_slabs = !keeps_values && (frame.region != nullptr || large);
  if (heatmaps_)
    item.finder.emplace(grid.item, item.sums.classes, options_.points, static_cast<float>(options_.point_threshold));
  const int rows = item.by_slabs ? grid.roi.rows : grid.item.rows;
  item.pixels = static_cast<std::size_t>(rows) * static_cast<std::size_t>(grid.item.row_values());
  item.results = device.allocate<std::byte>(item.result_bytes());
  device.zero(item.faults(), sizeof(std::int32_t));
  if (!item.by_slabs || heatmaps_ || context_.output_folder.empty()) return;
  const std::string folder = context_.output_folder + "/" + unfinished_folder;
  make_folder(folder);
  // The plan of the folder fixes everything that determines labels. The key finds files of another plan.
  const std::string key = frame.item.path + " " + std::to_string(frame.item.bytes) + " " +
                          std::to_string(frame.item.mtime_ns) + " " + model_.package().id() + " " + key_of(options) +
                          (frame.region != nullptr ? frame.region->info().other_files : "");
  item.file =
      std::make_shared<LabelFile>(folder, std::to_string(frame.item.id), key, grid.item.rows, grid.item.row_values());
  // Also if the picture fails.
  frame.when_committed = [file = item.file] { file->remove(); };
  frame.split = frame.split || item.file->split();
  if (item.file->finished_rows() == 0) return;
  if (frame.columns.get(tiling).skip_bad) item.hole_pixels = count_holes(*item.file);
  // Windows that touch no further row are not needed. The others blend again from their first row on.
  const int finished_padded = item.file->finished_rows() + grid.before.rows;
  const bool all = item.file->finished_rows() == grid.item.rows;
  while (item.band < grid.bands() &&
         (all || grid.rows[static_cast<std::size_t>(item.band)] + grid.roi.rows <= finished_padded))
    ++item.band;
  item.first_window = item.band * grid.band_windows();
  item.finished = grid.complete_before(item.band);
}

void Semantic::begin_source(Item& item, Frame& frame, int ways) const {
  Device& device = *context_.device;
  WindowSource& source = item.source;
  source.item = item.grid.item;
  source.before = item.grid.before;
  source.reversed = model_.package().input.bgr;
  set_scaling(model_.package(), frame, source);
  const EmptyRule& empty = frame.columns.get(tiling).empty;
  item.mask = frame.columns.get(tiling).mask;
  if (item.mask != nullptr && !empty.any()) item.bands = item.mask->needed_bands(item.grid);
  if (frame.region != nullptr) {
    const RegionInfo& info = frame.region->info();
    RowRing::Look look;
    if (empty.any()) {
      item.filter.emplace(item.grid, empty, info.channels, info.type);
      look = [&item](int first, int count, const void* rows) { item.filter->add(first, count, rows); };
    }
    item.ring.emplace(frame.region, ring_rows(item.grid, item.first_row, ways, model_.maximum(method)),
                      item.grid.roi.rows, frame.columns.get(tiling).skip_bad ? &item.holes : nullptr, std::move(look),
                      device);
    source.values = item.ring->data();
    source.ring = item.ring->capacity();
    source.type = info.type;
    source.channels = info.channels;
  } else {
    const PixelBuffer& raster = frame.columns.get(pixels);
    item.raster = raster.data;
    item.picture = device.upload({raster.data.get(), raster.width, raster.height}, raster.data);
    source.values = item.picture.data.get();
    source.ring = item.grid.item.rows;
    if (empty.any()) {
      item.filter.emplace(item.grid, empty, source.channels, source.type);
      item.filter->add(0, raster.height, raster.data.get());
    }
  }
}

Tensor Semantic::cut(std::span<const CallRow> rows, int count, Work& work) const {
  load_rows(rows, work);
  const Package& package = model_.package();
  const DType type = context_.models.images ? context_.models.images(package) : DType::f32;
  Tensor inputs =
      context_.device->empty(shape_of(package.input, count, static_cast<std::int64_t>(package.channels.size())), type);
  std::vector<CutWindow> windows;
  for (const CallRow& row : rows) {
    const Item& item = work.item_of(row.row);
    const std::int64_t window = work.window_of(item, row.row);
    const bool blank = row.blank || item.frame->failed() || !item.has_rows_of(window);
    windows.push_back({blank ? nullptr : &item.source, item.grid.start(window),
                       work.layout.mirrors[static_cast<std::size_t>(work.way_of(item, row.row))]});
  }
  cut_windows(*context_.device, windows, work.options.roi, work.layout.order, inputs);
  return inputs;
}

// The pixels of a file that is read in parts are known when the rows of the window's call up to it are in memory.
bool Semantic::needs_model(int row, Work& work) const {
  const Item& item = work.item_of(row);
  const std::int64_t window = work.window_of(item, row);
  if (window < item.first_window) return false;
  if (!item.filter) return item.needs_model(window);
  const int in_call = model_.maximum(method);
  const int first = std::max(row / in_call * in_call, static_cast<int>(item.first_row));
  load_rows(std::array{CallRow{first}, CallRow{row}}, work);
  return !item.frame->failed() && item.needs_model(window);
}

// Rows that cannot be read fail their picture. Its windows become blank, and the others keep their results.
// With a mask alone, exactly the rows of bands with a window that needs the model are read, also ahead. So which rows are
// read depends neither on the windows of a call nor on where an earlier attempt ended.
void Semantic::load_rows(std::span<const CallRow> rows, Work& work) const {
  for (std::size_t i = 0; i < rows.size();) {
    Item& item = work.item_of(rows[i].row);
    std::size_t next = i;
    const bool alone = !item.bands.empty();
    while (next < rows.size() && &work.item_of(rows[next].row) == &item && !(alone && next > i)) ++next;
    const auto row_of = [&](std::size_t at) { return item.grid.start(work.window_of(item, rows[at].row)).rows; };
    const int begin = row_of(i) - item.grid.before.rows,
              end = row_of(next - 1) + item.grid.roi.rows - item.grid.before.rows;
    const std::int64_t window = work.window_of(item, rows[i].row);
    i = next;
    if (!item.ring || item.frame->failed() || !item.has_rows_of(window)) continue;
    try {
      const int from = std::max(begin, 0), to = std::min(end, item.grid.item.rows);
      context_.counters[slabs_in] +=
          alone ? item.ring->load(from, to, item.needed_to(window) - item.grid.before.rows) : item.ring->load(from, to);
      item.source.holes = item.holes.data();
      item.source.hole_count = static_cast<int>(item.holes.size());
    } catch (const PictureError& error) {
      item.frame->fail(name, error.reason(), error.what());
    }
  }
}

void Semantic::take(std::span<const TakenRow> rows, Work& work) const {
  Device& device = *context_.device;
  std::vector<BlendWindow> pending;
  const Tensor* outputs = nullptr;
  const auto blend = [&] {
    if (!pending.empty()) blend_windows(device, *outputs, work.options.roi, work.layout.order, work.weights, pending);
    pending.clear();
  };
  std::vector<Item*> complete;
  for (const TakenRow& row : rows) {
    Item& item = work.item_of(row.row);
    if (item.frame->failed()) continue;  // when a slab of it left
    const std::int64_t window = work.window_of(item, row.row);
    const int way = work.way_of(item, row.row);
    const bool seen = way + 1 == work.ways();  // in all ways
    if (seen) {
      work.windows.done(window + 1 - item.passed);
      item.passed = window + 1;
    }
    // After a split, the rows of one call come from several calls.
    if (outputs != &row.outputs->front()) blend();
    outputs = &row.outputs->front();
    begin_sums(item);
    if (const int band = item.grid.band_of(window); band != item.band) {
      // Rows must leave before the new band takes their place in the ring.
      blend();
      finish_before(item, band);
    }
    pending.push_back(
        {&item.sums, row.at, item.grid.start(window), work.layout.mirrors[static_cast<std::size_t>(way)]});
    if (seen && window + 1 == item.grid.windows()) complete.push_back(&item);
  }
  blend();
  for (Item* const item : complete) item->band = item->grid.bands();
  finish(complete);
  for (Item* const item : complete) end_sums(*item);
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
