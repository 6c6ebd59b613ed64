// How finished rows of a picture become its labels and values.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

#include "io/results/resized_labels.hpp"
#include "stages/holes.hpp"
#include "stages/semantic_item.hpp"

namespace millrace {
namespace {

constexpr std::size_t most_points = 1'000'000;  // of a line, which then has about 40 MB

std::string not_finite(std::int32_t pixels) {
  return "the model gave values that are not finite for " + std::to_string(pixels) + " places";
}

/// The names of labels 0, 1, ...
std::vector<std::string> label_names(const Package& package) {
  std::vector<std::string> names;
  if (package.threshold) names.emplace_back("background");
  names.insert(names.end(), package.classes.begin(), package.classes.end());
  return names;
}

}  // namespace

void Semantic::begin_sums(Item& item) const {
  if (item.sums_memory != nullptr) return;
  Device& device = *context_.device;
  const auto count = static_cast<std::size_t>(item.sums.values());
  try {
    item.sums_memory = device.allocate<float>(count);
  } catch (const std::bad_alloc&) {
    // The lane first tries smaller batches, whose sums are in the faster memory.
    if (!item.alone || device.on_host()) throw;
    item.sums_memory = device.mapped<float>(count);
    item.sums_on_host = item.frame->split = true;
  }
  item.sums.sums = item.sums_memory.get();
  device.zero(item.sums.sums, static_cast<std::size_t>(item.sums.values()) * sizeof(float));
}

void Semantic::end_sums(Item& item) const {
  if (item.sums_on_host) context_.device->keep(item.sums_memory);  // queued kernels still use it
  item.sums_memory = nullptr;
}

// Finishes an item whose last windows need no model. Nothing is left of an item whose last window was taken.
void Semantic::end(Item& item) const {
  if (item.filter || item.mask != nullptr) {
    for (std::int64_t window = item.first_window; window < item.grid.windows(); ++window)
      context_.counters[windows_skipped] += item.needs_model(window) ? 0 : 1;
  }
  if (item.band == item.grid.bands()) return;
  begin_sums(item);
  finish_before(item, item.grid.bands());
  end_sums(item);
}

// Band by band, since the sums have no room for rows of more bands. All windows of the bands between need no model.
void Semantic::finish_before(Item& item, int band) const {
  while (item.band < band) {
    ++item.band;
    finish(std::vector{&item});
  }
}

// Finishes the rows that no window from the item's band on touches.
void Semantic::finish(const std::vector<Item*>& items) const {
  std::vector<FinishedRows> rows;
  for (const Item* const item : items) {
    const WindowGrid& grid = item->grid;
    const std::int64_t shown =
        item->by_slabs ? 0 : std::max(item->finished - grid.before.rows, 0) * grid.item.row_values();
    rows.push_back({&item->sums, grid.item, grid.before, item->finished,
                    grid.complete_before(item->band) - item->finished, item->labels() + shown,
                    item->with_values ? item->values() + shown * item->sums.classes : nullptr, item->faults()});
  }
  finish_rows(*context_.device, rule_, rows);
  for (Item* const item : items) {
    const WindowGrid& grid = item->grid;
    const int first = std::max(item->finished - grid.before.rows, 0);
    item->finished = grid.complete_before(item->band);
    const int end = std::min(item->finished - grid.before.rows, grid.item.rows);
    if (item->by_slabs && end > first) take_slab(*item, first, end - first);
  }
}

// Rows that an earlier attempt has finished come again, because windows that touch later rows touch them too.
void Semantic::take_slab(Item& item, int first, int count) const {
  Device& device = *context_.device;
  ++context_.counters[slabs_out];
  std::shared_ptr<std::byte[]> here = item.results;
  if (!device.on_host()) {
    here = device.mapped<std::byte>(item.result_bytes());
    device.keep(here);
    device.download(item.results.get(), here.get(), item.result_bytes());
    device.wait();
  }
  std::int32_t faults = 0;
  std::memcpy(&faults, here.get(), sizeof(faults));
  if (faults != 0) return item.frame->fail(name, Reason::non_finite, not_finite(faults));
  const auto of_slab = [&](auto* values) {
    return reinterpret_cast<decltype(values)>(here.get() + (reinterpret_cast<std::byte*>(values) - item.results.get()));
  };
  const auto columns = static_cast<std::size_t>(item.grid.item.row_values());
  const int known = item.file == nullptr ? 0 : std::clamp(item.file->finished_rows() - first, 0, count);
  const std::span<std::uint8_t> fresh(of_slab(item.labels()) + static_cast<std::size_t>(known) * columns,
                                      static_cast<std::size_t>(count - known) * columns);
  const std::span<float> values(of_slab(item.values()),
                                item.finder ? fresh.size() * static_cast<std::size_t>(item.sums.classes) : 0);
  item.hole_pixels += cover_holes(item.holes, first + known, item.grid.item.columns, fresh, values);
  std::erase_if(item.holes, [&](const Hole& hole) { return hole.end_row <= first + count; });
  if (fresh.empty()) return;
  if (item.finder) return item.finder->add(values);
  if (item.file != nullptr) return item.file->append(fresh, item.frame->split);
  item.kept.insert(item.kept.end(), fresh.begin(), fresh.end());
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

void Semantic::deliver(Item& item) const {
  Frame& frame = *item.frame;
  if (!item.by_slabs) {
    if (*item.faults() != 0) return frame.fail(name, Reason::non_finite, not_finite(*item.faults()));
    item.hole_pixels = cover_holes(item.holes, 0, item.grid.item.columns, {item.labels(), item.pixels},
                                   {item.values(), item.values_count()});
  }
  // As long as labels or values exist, the gate does not get their bytes back.
  const auto results = std::make_shared<const std::pair<std::shared_ptr<std::byte[]>, std::shared_ptr<const void>>>(
      item.results, item.raster);
  if (options_.values != "none")
    frame.columns.set(class_values, {item.grid.item, is_volume(frame), item.sums.classes, {results, item.values()}});
  if (heatmaps_) {
    deliver_points(item);
  } else {
    deliver_labels(item, results);
  }
  if (item.hole_pixels > 0) frame.columns.set(hole_pixels, item.hole_pixels);
}

void Semantic::deliver_labels(Item& item, std::shared_ptr<const void> results) const {
  Frame& frame = *item.frame;
  ClassMap map;
  map.size = item.grid.item;
  map.volume = is_volume(frame);
  map.labels = item.file;
  map.names = label_names(model_.package());
  map.one_slab = !map.volume && item.grid.item.rows <= item.grid.roi.rows;
  if (frame.region != nullptr) {
    map.spacing_mm = frame.region->info().spacing_mm;
    map.nifti_header = frame.region->info().nifti_header;
    map.geo = frame.region->info().geo;
  }
  map.instances = options_.instances;
  if (item.by_slabs && item.file == nullptr) {
    const auto kept = std::make_shared<const std::vector<std::uint8_t>>(std::move(item.kept));
    map.labels =
        std::make_shared<LabelsInMemory>(std::shared_ptr<const std::uint8_t[]>(kept, kept->data()), kept->size());
  } else if (!item.by_slabs) {
    map.labels = std::make_shared<LabelsInMemory>(
        std::shared_ptr<const std::uint8_t[]>(std::move(results), item.labels()), item.pixels);
  }
  if (frame.region != nullptr && frame.region->info().file_size) {
    map.size = *frame.region->info().file_size;
    map.labels = resized_labels(map.labels, item.grid.item, map.size);
    map.one_slab = map.one_slab && map.size.rows <= item.grid.roi.rows;
    if (item.hole_pixels > 0) item.hole_pixels = count_holes(*map.labels);
  }
  frame.columns.set(class_map, std::move(map));
}

void Semantic::deliver_points(Item& item) const {
  Frame& frame = *item.frame;
  if (!item.by_slabs) item.finder->add({item.values(), item.values_count()});
  Points points;
  points.names = model_.package().classes;
  points.channels = item.finder->finish();
  std::size_t count = 0;
  for (const auto& of_channel : points.channels) count += of_channel.size();
  if (count > most_points)
    return frame.fail(name, Reason::too_large,
                      "it has " + std::to_string(count) + " points, and a line has at most " +
                          std::to_string(most_points) + "; lower semantic.points, or raise semantic.point_threshold");
  if (frame.region != nullptr) {
    const RegionInfo& info = frame.region->info();
    points.volume = info.volume;
    points.affine = info.affine;
    if (info.file_size) {
      resize_points(points, item.grid.item, *info.file_size);
      item.hole_pixels =
          std::llround(static_cast<double>(item.hole_pixels) * static_cast<double>(info.file_size->values()) /
                       static_cast<double>(item.grid.item.values()));
    }
  }
  frame.columns.set(points_found, std::move(points));
}

}  // namespace millrace
