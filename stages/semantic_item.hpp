#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/hole.hpp"
#include "gpu/device.hpp"
#include "gpu/ops/blend_windows.hpp"
#include "gpu/ops/cut_windows.hpp"
#include "io/results/labels.hpp"
#include "stages/row_ring.hpp"
#include "stages/semantic.hpp"
#include "stages/window_filter.hpp"
#include "stages/window_layout.hpp"

namespace millrace {

/// A picture of the batch.
struct Semantic::Item {
  Frame* frame = nullptr;
  std::int64_t first_row = 0;     // of those of its windows, among the rows of the batch
  std::int64_t first_window = 0;  // windows before it are not needed: an earlier attempt has finished their rows
  WindowGrid grid;
  DeviceImage picture;
  std::shared_ptr<const void> raster;  // owns the bytes that the gate granted, also those of `results`
  std::vector<Hole> holes;             // of rows that have been read and have not left
  std::int64_t hole_pixels = 0;        // in rows that have left
  std::optional<WindowFilter> filter;  // absent: no value says that a window needs no model
  std::vector<bool> bands;             // of `mask`, if it alone says which rows are read: those whose rows are needed
  std::shared_ptr<const WindowMask> mask;  // null: no mask says it
  std::optional<RowRing> ring;             // instead of `picture`, if the file is read in parts
  WindowSource source;
  BlendSums sums;
  bool alone = false;                    // in its batch
  bool sums_on_host = false;             // since the device had too little memory for them
  std::shared_ptr<float[]> sums_memory;  // allocated for the first window, freed after the last
  std::int64_t passed = 0;               // windows up to the latest one that needed the model
  int band = 0;                          // of the latest window
  int finished = 0;                      // rows of the padded picture that have left
  bool by_slabs = false;                 // its labels leave slab by slab
  std::shared_ptr<LabelFile> file;       // gets them; null: `kept` does, since there is no output folder
  std::vector<std::uint8_t> kept;
  std::shared_ptr<std::byte[]> results;  // on the device, then on the host
  std::size_t pixels = 0;                // that `results` has room for
  bool with_values = false;
  std::optional<PointFinder> finder;  // of heatmaps, which have no labels

  /// False: the rows of a window are not read, since no window of its band needs the model.
  bool has_rows_of(std::int64_t window) const {
    return bands.empty() || bands[static_cast<std::size_t>(grid.band_of(window))];
  }
  /// The padded row up to which rows are needed without a gap after those of a window that has rows.
  int needed_to(std::int64_t window) const {
    const auto band = static_cast<std::size_t>(grid.band_of(window));
    const int end = grid.rows[band] + grid.roi.rows;
    const auto next = std::find(bands.begin() + static_cast<std::ptrdiff_t>(band) + 1, bands.end(), true);
    if (next == bands.end()) return end;
    const int start = grid.rows[static_cast<std::size_t>(next - bands.begin())];
    return start <= end ? start + grid.roi.rows : end;
  }
  /// With a filter, only if the rows of the window are in memory.
  bool needs_model(std::int64_t window) const {
    return (mask == nullptr || mask->needs_model(grid, window)) && (!filter || filter->needs_model(window));
  }

  // One block of memory, so that one copy brings it to the host: faults, values, labels.
  std::int32_t* faults() const { return reinterpret_cast<std::int32_t*>(results.get()); }
  float* values() const { return reinterpret_cast<float*>(results.get() + sizeof(float)); }
  std::size_t values_count() const { return with_values ? pixels * static_cast<std::size_t>(sums.classes) : 0; }
  std::uint8_t* labels() const { return reinterpret_cast<std::uint8_t*>(values() + values_count()); }
  std::size_t result_bytes() const { return sizeof(float) * (1 + values_count()) + pixels; }
};

/// Items whose windows have one shape, so that they share calls.
struct Semantic::Work {
  Work(WindowsInWork& in_work, WindowLayout of, std::size_t slots)
      : windows(in_work), layout(std::move(of)), by_slot(slots) {}
  WindowsInWork& windows;
  const WindowLayout layout;  // each window is a row for each of its mirrors
  WindowOptions options;
  const float* weights = nullptr;  // on the device
  std::deque<Item> items;
  std::vector<Item*> by_slot;
  std::vector<int> owners;  // slot of each row
  Item& item_of(int row) const { return *by_slot[static_cast<std::size_t>(owners[static_cast<std::size_t>(row)])]; }
  int ways() const { return static_cast<int>(layout.mirrors.size()); }
  /// The window of its item that a row shows, and in which way.
  std::int64_t window_of(const Item& item, int row) const { return (row - item.first_row) / ways(); }
  int way_of(const Item& item, int row) const { return static_cast<int>((row - item.first_row) % ways()); }
};

/// Whether the frame is a volume.
inline bool is_volume(const Frame& frame) { return frame.region != nullptr && frame.region->info().volume; }

}  // namespace millrace
