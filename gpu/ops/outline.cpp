#include "gpu/ops/outline.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "gpu/device.hpp"
#include "gpu/finite.hpp"

namespace millrace {
namespace {

constexpr double min_positions_per_mask = 2048;  // 8 kB; objects in photographs have 300 to 5,000
constexpr double headroom = 1.25;                // times the largest mean so far

void outline_on_host(const MaskCall& call, const MaskTarget& target, float threshold,
                     std::optional<MaskOutliner>& outliner) {
  const Tensor logits = call.logits.row(target.row);
  OutlinedMask& mask = *target.mask;
  mask.predicted_iou = call.predicted_iou.host<const float>()[static_cast<std::size_t>(target.row)];
  if (!all_finite({&mask.predicted_iou, 1})) {
    mask.fault = iou_not_finite;
    return;
  }
  // Targets come picture by picture, so the tables of one geometry serve all objects of a picture.
  if (!outliner || !(outliner->geometry() == target.geometry)) outliner.emplace(target.geometry);
  try {
    mask.counts = outliner->outline(logits.host<const float>(), threshold);
  } catch (const NonFinite& error) {
    mask.fault = error.what();
  }
}

void on_host(const OutlineJob& job) {
  for (const MaskTarget& target : job.request.call->targets)
    outline_on_host(*job.request.call, target, job.threshold, *job.request.outliner);
}

void body(const OutlineJob& job) {
  if (!job.counted) {
    outline_kernel::classify_all(job);
    outline_kernel::for_each_stretch(job, outline_kernel::count);
    // The entry after the last count is 0 (count), so its sum is the total.
    std::exclusive_scan(job.counts, job.counts + job.all_stretches() + 1, job.counts, 0U);
  }
  outline_kernel::for_each_stretch(job, outline_kernel::write);
}

/// Returns the positions of an ellipse in the middle, with a quarter of the picture's width and height.
/// It has two positions per column: 960 in a picture of 1920 x 1080. Masks of real objects have 300 to 5,000.
std::vector<std::uint32_t> ellipse(int width, int height) {
  const int columns = std::max(1, width / 4), middle = height / 2;
  std::vector<std::uint32_t> positions;
  for (int i = 0; i < columns; ++i) {
    const double across = 2.0 * (i + 0.5) / columns - 1;
    const int half = std::max(1, static_cast<int>(height / 8.0 * std::sqrt(1 - across * across)));
    const int x = (width - columns) / 2 + i;
    positions.push_back(static_cast<std::uint32_t>(x * height + std::max(0, middle - half)));
    positions.push_back(static_cast<std::uint32_t>(x * height + std::min(height, middle + half)));
  }
  return positions;
}

void simulate(const OutlineJob& job) {
  std::vector<std::uint32_t> positions;  // of the last mask: drawing each anew would dominate the host's time
  std::int32_t drawn = -1;
  std::uint32_t at = 0;
  for (int n = 0; n < job.masks; ++n) {
    job.starts[n] = at;
    job.iou[n] = 0.9F;  // finite, or the mask would count as faulty
    job.faulty[n] = 0;
    if (job.slots[n] < 0) continue;
    if (std::exchange(drawn, job.slots[n]) != job.slots[n]) {
      const MaskResizing& resizing = job.resizings[job.slots[n]];
      positions = ellipse(resizing.outer_x.to, resizing.outer_y.to);
    }
    // Masks that do not fit count too, so that a second wait follows, as on a GPU.
    if (at + positions.size() <= job.capacity) std::ranges::copy(positions, job.positions + at);
    at += static_cast<std::uint32_t>(positions.size());
  }
  job.starts[job.masks] = at;
}

/// The table has the time of a whole mask. The repeated last step adds nothing.
double masks_of(const OutlineJob& job) { return job.counted ? 0 : job.masks; }

constexpr Operation<OutlineJob> operation{
    .name = "outline", .host = on_host, .body = body, .units = masks_of, .simulate = simulate};

/// Converts positions of changes to runs.
std::vector<std::uint32_t> runs_of(std::span<const std::uint32_t> positions, std::uint32_t pixels) {
  std::vector<std::uint32_t> runs;
  runs.reserve(positions.size() + 1);
  std::uint32_t before = 0;
  for (const std::uint32_t position : positions) {
    runs.push_back(position - before);
    before = position;
  }
  runs.push_back(pixels - before);
  return runs;
}

/// One decoder call whose masks are pending. Its results are starts, iou, faulty, positions (OutlineJob).
/// All four have 32 bits, so one buffer holds them and one copy brings them down.
struct PendingMasks {
  OutlineJob job;
  std::vector<MaskTarget> targets;
  std::size_t offset = 0;  // in words

  [[nodiscard]] std::size_t head_words() const { return 3 * static_cast<std::size_t>(job.masks) + 1; }
  [[nodiscard]] std::size_t words() const { return head_words() + job.capacity; }
  // `starts` has one entry more than there are masks: the total.
  void place_at(std::uint32_t* part) {
    const auto masks = static_cast<std::size_t>(job.masks);
    job.starts = part;
    job.iou = reinterpret_cast<float*>(part + masks + 1);
    job.faulty = part + 2 * masks + 1;
    job.positions = part + head_words();
  }
  void deliver(const std::uint32_t* part) const;
};

void PendingMasks::deliver(const std::uint32_t* part) const {
  // The same layout as in place_at(), in the copy on the host.
  const auto masks = static_cast<std::size_t>(job.masks);
  const auto* iou = reinterpret_cast<const float*>(part + masks + 1);
  const std::uint32_t* faulty = part + 2 * masks + 1;
  const std::uint32_t* positions = part + head_words();
  for (const MaskTarget& target : targets) {
    const auto n = static_cast<std::size_t>(target.row);
    OutlinedMask& mask = *target.mask;
    mask.predicted_iou = iou[n];
    // The predicted IoU comes first, as on the CPU, so that both devices name the same fault.
    if (!std::isfinite(iou[n])) {
      mask.fault = iou_not_finite;
    } else if (faulty[n] != 0) {
      mask.fault = logits_not_finite;
    } else {
      // It fits 32 bits: check_geometry() has refused larger pictures.
      const auto pixels = static_cast<std::uint32_t>(target.geometry.picture_width) *
                          static_cast<std::uint32_t>(target.geometry.picture_height);
      mask.counts = runs_of({positions + part[n], part[n + 1] - part[n]}, pixels);
    }
  }
}

/// The results that come down in one copy.
struct Results {
  std::vector<PendingMasks> pending;
  std::size_t words = 0;
  std::shared_ptr<std::uint32_t[]> device, host;
};

/// State of a device between calls.
struct OutlineState {
  double max_positions = 0;              // highest mean of a call so far, per mask
  std::optional<MaskOutliner> outliner;  // for the CPU
};

PendingMasks begin(Device& device, const MaskCall& call, float threshold) {
  PendingMasks masks;
  OutlineJob& job = masks.job;
  job.masks = static_cast<int>(call.logits.shape[0]);
  job.logits_height = static_cast<int>(call.logits.shape[1]);
  job.logits_width = static_cast<int>(call.logits.shape[2]);
  job.threshold = threshold;
  // -1 marks rows without a target, such as padding.
  std::vector<std::int32_t> slots(static_cast<std::size_t>(job.masks), -1);
  std::vector<MaskResizing> resizings;
  const MaskGeometry* last = nullptr;
  for (const MaskTarget& target : call.targets) {
    // Targets come picture by picture, so a comparison with the last one finds most repetitions.
    if (last == nullptr || !(*last == target.geometry)) {
      check_geometry(target.geometry);
      resizings.emplace_back(target.geometry);
      last = &target.geometry;
    }
    slots[static_cast<std::size_t>(target.row)] = static_cast<std::int32_t>(resizings.size()) - 1;
    job.widest = std::max(job.widest, target.geometry.picture_width);
  }
  job.logits = static_cast<const float*>(call.logits.data);
  job.predicted_iou = static_cast<const float*>(call.predicted_iou.data);
  job.slots = device.store(std::span<const std::int32_t>(slots));
  job.resizings = device.store(std::span<const MaskResizing>(resizings));
  job.geometries = static_cast<int>(resizings.size());
  const auto words = static_cast<std::size_t>(job.masks) * static_cast<std::size_t>(job.words());
  const auto stretches = static_cast<std::size_t>(job.all_stretches());
  job.sides = device.scratch<LogitSides>(words * static_cast<std::size_t>(job.logits_width));
  job.not_finite = device.scratch<std::uint32_t>(words);
  job.ranges = device.scratch<RowRange>(resizings.size() * static_cast<std::size_t>(job.logits_height));
  job.counts = device.scratch<std::uint32_t>(stretches + 1);
  job.kept = device.scratch<std::uint32_t>(OutlineJob::few * stretches);
  const double positions_per_mask =
      std::max(min_positions_per_mask, headroom * device.state<OutlineState>().max_positions);
  job.capacity = static_cast<std::uint32_t>(std::ceil(positions_per_mask * job.masks));
  masks.targets = call.targets;
  // If the masks do not fit, the last step reads the outputs again after the first wait.
  device.keep(call.logits.storage);
  device.keep(call.predicted_iou.storage);
  return masks;
}

/// Allocates memory for the results of these calls, one after another.
std::shared_ptr<Results> make_results(Device& device, std::vector<PendingMasks> pending) {
  const auto results = std::make_shared<Results>();
  results->pending = std::move(pending);
  for (PendingMasks& masks : results->pending) {
    masks.offset = results->words;
    results->words += masks.words();
  }
  results->device = device.allocate<std::uint32_t>(results->words);
  for (PendingMasks& masks : results->pending) masks.place_at(results->device.get() + masks.offset);
  return results;
}

void deliver(Device& device, const Results& results);

/// Copies the results to the host in one copy, after all calls are queued.
void queue_download(Device& device, const std::shared_ptr<Results>& results) {
  device.at_wait(
      [&device, results] {
        results->host = device.mapped<std::uint32_t>(results->words);
        device.download(results->device.get(), results->host.get(), results->words * sizeof(std::uint32_t));
      },
      [&device, results] { deliver(device, *results); });
}

void deliver(Device& device, const Results& results) {
  double& max_positions = device.state<OutlineState>().max_positions;
  std::vector<PendingMasks> cut;
  for (const PendingMasks& masks : results.pending) {
    const std::uint32_t* part = results.host.get() + masks.offset;
    const std::uint32_t total = part[masks.job.masks];
    // Also for masks that do not fit, so that the next estimate is large enough.
    max_positions = std::max(max_positions, static_cast<double>(total) / masks.job.masks);
    if (total <= masks.job.capacity) {
      masks.deliver(part);
    } else {  // the buffer is too small: only the last step runs again
      cut.push_back(masks);
      cut.back().job.capacity = total;
      cut.back().job.counted = true;
    }
  }
  if (cut.empty()) return;
  const auto again = make_results(device, std::move(cut));
  for (const PendingMasks& masks : again->pending) device.run(operation, masks.job);
  queue_download(device, again);
}

}  // namespace

void outline(Device& device, std::span<const MaskCall> calls, float threshold) {
  if (device.on_host()) {
    for (const MaskCall& call : calls) {
      OutlineJob job;
      job.request = {&call, &device.state<OutlineState>().outliner};
      job.threshold = threshold;
      device.run(operation, job);
    }
    return;
  }
  std::vector<PendingMasks> pending;
  for (const MaskCall& call : calls) {
    if (!call.targets.empty()) pending.push_back(begin(device, call, threshold));
  }
  if (pending.empty()) return;
  const auto results = make_results(device, std::move(pending));
  for (const PendingMasks& masks : results->pending) device.run(operation, masks.job);
  queue_download(device, results);  // last, because a copy must not read results of calls that were not queued
}

}  // namespace millrace
