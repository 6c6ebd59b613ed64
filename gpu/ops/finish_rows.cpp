#include "gpu/ops/finish_rows.hpp"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "gpu/clones.hpp"
#include "gpu/device.hpp"

namespace millrace {
namespace {

constexpr int block = 256;  // columns whose values of all classes stay in the first-level cache

void body(const FinishJob& job) { finish_kernel::finish_all(job); }

/// The largest of `count` places' values, its class and whether all are finite, class by class.
MILLRACE_CLONES void find_largest(const float* sums, std::int64_t plane, int classes, int count, float* largest,
                                  std::int32_t* best, std::int32_t* faults) {
  const float* const weights = sums + classes * plane;
  for (int i = 0; i < count; ++i) {
    largest[i] = sums[i] / weights[i];
    best[i] = 0;
    faults[i] = std::fabs(largest[i]) <= 3.4028235e38F ? 0 : 1;
  }
  for (int k = 1; k < classes; ++k) {
    const float* const of_class = sums + k * plane;
    for (int i = 0; i < count; ++i) {
      const float value = of_class[i] / weights[i];
      faults[i] |= std::fabs(value) <= 3.4028235e38F ? 0 : 1;
      best[i] = value > largest[i] ? k : best[i];
      largest[i] = value > largest[i] ? value : largest[i];
    }
  }
}

/// The labels of `count` neighbours in a line of the item. Returns the number of faults.
std::int32_t finish_block(const FinishJob& job, const FinishTarget& target, const float* sums, int count,
                          std::uint8_t* labels, float* values) {
  float largest[block];
  std::int32_t best[block], faults[block];
  const int classes = target.sums.classes;
  const std::int64_t plane = target.sums.plane();
  find_largest(sums, plane, classes, count, largest, best, faults);
  const float* const weights = sums + classes * plane;
  std::int32_t found = 0;
  for (int i = 0; i < count; ++i) {
    const bool blended = weights[i] > 0;
    const bool fault = blended && faults[i] != 0;
    found += static_cast<std::int32_t>(fault);
    std::int32_t label = best[i];
    if (job.rule.thresholded) label = largest[i] > job.rule.threshold ? best[i] + 1 : 0;
    labels[i] = blended && !fault ? static_cast<std::uint8_t>(label) : job.rule.empty;
    if (values != nullptr)
      finish_kernel::write_values(sums + i, target, job.rule, blended ? largest[i] : 0,
                                  values + std::int64_t{i} * classes);
  }
  return found;
}

void on_host(const FinishJob& job) {
  for (int t = 0; t < job.count; ++t) {
    const FinishTarget& target = job.targets[t];
    const BlendSums& sums = target.sums;
    const Extent &item = target.item, &before = target.before;
    for (int row = target.first; row < target.first + target.count; ++row) {
      float* const of_row = sums.sums + std::int64_t{row % sums.size.rows} * (sums.classes + 1) * sums.plane();
      const int r = row - before.rows;
      for (int l = 0; r >= 0 && r < item.rows && l < item.lines; ++l) {
        const std::int64_t at = (std::int64_t{r - target.first_in_item()} * item.lines + l) * item.columns;
        const float* const of_line = of_row + std::int64_t{l + before.lines} * sums.size.columns + before.columns;
        for (int c = 0; c < item.columns; c += block) {
          float* const values = target.values == nullptr ? nullptr : target.values + (at + c) * sums.classes;
          *target.faults +=
              finish_block(job, target, of_line + c, std::min(block, item.columns - c), target.labels + at + c, values);
        }
      }
      std::fill_n(of_row, (sums.classes + 1) * sums.plane(), 0.0F);
    }
  }
}

double megaplaces(const FinishJob& job) { return static_cast<double>(job.places) / 1e6; }

constexpr Operation<FinishJob> operation{.name = "finish_rows", .host = on_host, .body = body, .units = megaplaces};

}  // namespace

void finish_rows(Device& device, const LabelRule& rule, std::span<const FinishedRows> rows) {
  FinishJob job;
  job.rule = rule;
  std::vector<FinishTarget> targets;
  for (const FinishedRows& one : rows) {
    if (one.count > one.sums->size.rows) throw std::invalid_argument("finish_rows: more rows than the sums have");
    if (one.count <= 0) continue;
    targets.push_back({*one.sums, one.item, one.before, one.first, one.count, one.labels, one.values, one.faults});
    const std::int64_t places = one.count * one.sums->plane();
    job.most_places = std::max(job.most_places, places);
    job.places += places;
  }
  if (targets.empty()) return;
  job.count = static_cast<int>(targets.size());
  job.targets = device.on_host() ? targets.data() : device.store(std::span<const FinishTarget>(targets));
  device.run(operation, job);
}

}  // namespace millrace
