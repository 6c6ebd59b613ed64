#include "gpu/ops/find_boxes.hpp"

#include <algorithm>
#include <utility>

#include "gpu/device.hpp"
#include "gpu/finite.hpp"
#include "gpu/nms.hpp"

namespace millrace {
namespace {

FoundBoxes find(const Tensor& output, const BoxTarget& target, const BoxSearch& search) {
  const Candidates all = decode_head(output, target.row, search.head, search.min_score);
  // Filters class and area before NMS and the limit, so that unwanted boxes do not displace others.
  Candidates kept;
  for (std::size_t i = 0; i < all.boxes.size(); ++i) {
    const Box box = target.geometry.to_picture(all.boxes[i]);
    const double area = static_cast<double>(box.x1 - box.x0) * static_cast<double>(box.y1 - box.y0);
    const bool has_area = box.x1 > box.x0 && box.y1 > box.y0;  // two negative sides make a positive area
    if (!has_area || area < search.min_area) continue;
    if (!search.wanted.empty() && search.wanted[static_cast<std::size_t>(all.classes[i])] == 0) continue;
    kept.boxes.push_back(all.boxes[i]);
    kept.scores.push_back(all.scores[i]);
    kept.classes.push_back(all.classes[i]);
  }
  // One box more than wanted tells whether there were more.
  const auto order =
      nms_cpu(kept.boxes, kept.scores, kept.classes, search.iou_threshold, search.max_boxes + 1, search.class_aware);
  FoundBoxes found;
  found.more = order.size() > static_cast<std::size_t>(search.max_boxes);
  for (const int index : std::span(order).first(order.size() - (found.more ? 1 : 0))) {
    const auto i = static_cast<std::size_t>(index);
    found.boxes.push_back(target.geometry.to_picture(kept.boxes[i]));
    found.scores.push_back(kept.scores[i]);
    found.classes.push_back(kept.classes[i]);
  }
  return found;
}

void on_host(const HeadJob& job) {
  for (const BoxTarget& target : job.request.targets) {
    try {
      *target.found = find(*job.request.output, target, *job.request.search);
    } catch (const NonFinite& error) {
      // Only this picture fails. The others of the batch keep their boxes.
      target.found->fault = error.what();
    } catch (const UnknownClass& error) {
      target.found->fault = error.what();
      target.found->unknown_class = true;
    }
  }
}

void body(const HeadJob& job) {
  for (int slot = 0; slot < job.slots; ++slot) {
    find_boxes_kernel::find_candidates(job, slot);
    find_boxes_kernel::keep_best(job, slot, find_boxes_kernel::OneThread{});
  }
}

/// A simulated detector finds nothing.
void simulate(const HeadJob& job) { std::fill_n(job.summaries, 2 * job.slots, 0); }

constexpr Operation<HeadJob> operation{.name = "find_boxes", .host = on_host, .body = body, .simulate = simulate};

HeadJob job_of(const BoxSearch& search, int slots) {
  HeadJob job;
  job.end_to_end = search.head.layout == HeadLayout::end_to_end;
  job.slots = slots;
  job.candidates = search.head.boxes;
  job.classes = search.head.classes;
  job.min_score = search.min_score;
  job.iou_threshold = search.iou_threshold;
  job.min_area = search.min_area;
  job.class_aware = search.class_aware;
  // A candidate has at most one box, so more room is never used. The extra one tells whether there were more.
  job.max_kept = std::min(search.max_boxes, job.candidates) + 1;
  return job;
}

/// Converts the kernels' output for one target. `kept` are the boxes of its slot.
FoundBoxes found_of(std::int32_t fault, std::int32_t number, const KeptBox* kept, int max_boxes) {
  FoundBoxes found;
  if (fault != 0) {
    // In the order of decode_head(), which throws for the first of them.
    found.unknown_class = fault == unknown_class;
    found.fault = (fault & not_finite) != 0     ? output_not_finite
                  : (fault & infinite_box) != 0 ? box_not_finite
                                                : class_not_known;
    return found;
  }
  found.more = number > max_boxes;
  for (int i = 0; i < std::min(number, max_boxes); ++i) {
    found.boxes.push_back(kept[i].box);
    found.scores.push_back(kept[i].score);
    found.classes.push_back(kept[i].class_id);
  }
  return found;
}

}  // namespace

void find_boxes(Device& device, const Tensor& output, const BoxSearch& search, std::span<const BoxTarget> targets) {
  check_head_output(output, search.head);
  const int slots = static_cast<int>(output.shape[0]);
  HeadJob job = job_of(search, slots);
  if (device.on_host()) {
    job.request = {&output, &search, targets};
    return device.run(operation, job);
  }
  const auto count = static_cast<std::size_t>(slots), cells = count * static_cast<std::size_t>(job.candidates);
  // A slot without a target keeps an empty geometry, and the kernels skip it.
  std::vector<LetterboxGeometry> geometry(count);
  for (const BoxTarget& target : targets) geometry[static_cast<std::size_t>(target.row)] = target.geometry;
  job.output = static_cast<const float*>(output.data);
  job.geometry = device.store(std::span<const LetterboxGeometry>(geometry));
  if (!search.wanted.empty()) job.wanted = device.store(std::span(search.wanted));
  job.keys = device.scratch<std::uint64_t>(cells);
  job.boxes = device.scratch<Box>(cells);
  job.best = device.scratch<std::int32_t>(cells);
  job.faults = device.scratch<std::int32_t>(2 * count);
  job.found = job.faults + count;
  // Threads of a slot combine faults by "or", and count candidates. The other scratch memory is written before it is
  // read.
  device.zero(job.faults, 2 * count * sizeof(std::int32_t));
  // Kernels write the few kept boxes directly to host memory, so no copy is needed.
  const auto summaries = device.mapped<std::int32_t>(2 * count);
  const auto kept = device.mapped<KeptBox>(count * static_cast<std::size_t>(job.max_kept));
  job.summaries = summaries.get();
  job.kept = kept.get();
  device.keep(output.storage);
  device.run(operation, job);
  // The function owns the mapped memory until the wait. It copies the targets, because the caller's span may end first.
  device.at_wait({}, [summaries, kept, max_kept = static_cast<std::size_t>(job.max_kept), max_boxes = search.max_boxes,
                      own = std::vector<BoxTarget>(targets.begin(), targets.end())] {
    for (const BoxTarget& target : own) {
      const auto slot = static_cast<std::size_t>(target.row);
      *target.found = found_of(summaries[2 * slot], summaries[2 * slot + 1], kept.get() + slot * max_kept, max_boxes);
    }
  });
}

}  // namespace millrace
