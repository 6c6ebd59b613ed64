#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/box.hpp"
#include "base/tensor.hpp"
#include "gpu/device_code.hpp"
#include "gpu/letterbox.hpp"
#include "gpu/yolo_head.hpp"

namespace millrace {

class Device;
class Stream;

/// Options of the search in a detector's output. All pictures of a view have the same.
struct BoxSearch {
  HeadSpec head;
  float min_score = 0.25F;
  double iou_threshold = 0.45;
  double min_area = 0;  ///< in picture pixels
  bool class_aware = true;
  int max_boxes = 100;               ///< for each picture, best first
  std::vector<std::uint8_t> wanted;  ///< by class, 0: skipped; empty: all classes are wanted
};

/// The boxes of one picture, best first, in picture pixels, clipped to the picture.
struct FoundBoxes {
  std::vector<Box> boxes;
  std::vector<float> scores;
  std::vector<int> classes;
  bool more = false;           ///< there were more than max_boxes
  std::string fault;           ///< not empty: what is wrong with the output. Then there are no boxes
  bool unknown_class = false;  ///< the fault is a class number; else NaN or infinity
};

/// Row `row` of a detector's output, the position of its picture in the input, and the destination of the boxes.
struct BoxTarget {
  int row = 0;
  LetterboxGeometry geometry;
  std::shared_ptr<FoundBoxes> found;
};

/// Operation `find_boxes`: decodes a detector's output and suppresses overlaps. `found` is filled after the wait.
/// Throws std::invalid_argument if type or shape differ from the head.
void find_boxes(Device& device, const Tensor& output, const BoxSearch& search, std::span<const BoxTarget> targets);

/// A kept box, for the host. Corners are in picture pixels, clipped to the picture.
struct KeptBox {
  Box box;
  float score;
  std::int32_t class_id;
};

/// One call for S slots. Pointers are to device memory unless they say otherwise; [S, ...] is by slot.
struct HeadJob {
  /// Inputs and outputs of the CPU, which needs none of the fields below.
  struct Request {
    const Tensor* output = nullptr;
    const BoxSearch* search = nullptr;
    std::span<const BoxTarget> targets{};
  } request;

  const float* output = nullptr;  ///< v8: [S, 4 + classes, candidates]; end_to_end: [S, candidates, 6]
  bool end_to_end = false;
  int slots = 0, candidates = 0, classes = 0;
  float min_score = 0;
  double iou_threshold = 0, min_area = 0;
  bool class_aware = true;
  int max_kept = 0;                             ///< maximum boxes plus one, to learn whether there were more
  const std::uint8_t* wanted = nullptr;         ///< [classes], or null: all
  const LetterboxGeometry* geometry = nullptr;  ///< [S]; picture_width 0: the slot needs no boxes
  // Outputs and scratch memory:
  std::uint64_t* keys = nullptr;      ///< [S, candidates] scratch: the keys found, in any order; 0: not any more
  Box* boxes = nullptr;               ///< [S, candidates] scratch, in input pixels, by candidate
  std::int32_t* best = nullptr;       ///< [S, candidates] scratch: classes, by candidate
  std::int32_t* found = nullptr;      ///< [S]: number of keys; 0 before the call
  std::int32_t* faults = nullptr;     ///< [S] bits of HeadFault; 0 before the call
  std::int32_t* summaries = nullptr;  ///< [S, 2]: faults, number of kept boxes; on the host
  KeptBox* kept = nullptr;            ///< [S, max_kept]; on the host
};

enum HeadFault : std::int32_t { not_finite = 1, infinite_box = 2, unknown_class = 4 };

/// Queues the kernels (find_boxes.cu).
void launch(const HeadJob& job, Stream& stream);

namespace find_boxes_kernel {

template <class T>
MILLRACE_DEVICE T lower_of(T a, T b) {
  return b < a ? b : a;
}
template <class T>
MILLRACE_DEVICE T higher_of(T a, T b) {
  return a < b ? b : a;
}

/// A higher key comes first: higher score, then lower index.
/// Scores are not negative, so the order of their bits is the order of their values.
MILLRACE_DEVICE inline std::uint64_t key_of(float score, int candidate) {
  union {
    float value;
    std::uint32_t bits;
  } pun{score + 0.0F};  // turns a negative zero into zero
  return (static_cast<std::uint64_t>(pun.bits) << 32) | (0xffffffffU - static_cast<std::uint32_t>(candidate));
}
MILLRACE_DEVICE inline int candidate_of(std::uint64_t key) {
  return static_cast<int>(0xffffffffU - static_cast<std::uint32_t>(key));
}
MILLRACE_DEVICE inline float score_of(std::uint64_t key) {
  union {
    std::uint32_t bits;
    float value;
  } pun{static_cast<std::uint32_t>(key >> 32)};
  return pun.value;
}

MILLRACE_DEVICE inline float mapped(float value, int padding, double scale, int side) {
  const double exact = (static_cast<double>(value) - padding) / scale;
  return static_cast<float>(exact < 0 ? 0.0 : exact > side ? static_cast<double>(side) : exact);
}
MILLRACE_DEVICE inline Box to_picture(const Box& box, const LetterboxGeometry& g) {
  return {mapped(box.x0, g.left, g.scale_x, g.picture_width), mapped(box.y0, g.top, g.scale_y, g.picture_height),
          mapped(box.x1, g.left, g.scale_x, g.picture_width), mapped(box.y1, g.top, g.scale_y, g.picture_height)};
}

struct Candidate {
  Box box;
  float score;
  int class_id;  ///< -1: not a class of the detector
  bool finite;
};

MILLRACE_DEVICE inline Candidate candidate_v8(const HeadJob& job, int slot, int index) {
  const float* column = job.output + static_cast<std::int64_t>(slot) * (4 + job.classes) * job.candidates + index;
  const auto at = [&](int row) { return column[static_cast<std::int64_t>(row) * job.candidates]; };
  float finite = at(0) * 0 + at(1) * 0 + at(2) * 0 + at(3) * 0;  // NaN if any of them is not finite
  float best = at(4);
  int class_id = 0;
  finite += best * 0;
  for (int c = 1; c < job.classes; ++c) {
    const float score = at(4 + c);
    finite += score * 0;
    if (score > best) {
      best = score;
      class_id = c;
    }
  }
  const float half_width = at(2) / 2, half_height = at(3) / 2;
  return {
      {at(0) - half_width, at(1) - half_height, at(0) + half_width, at(1) + half_height}, best, class_id, finite == 0};
}

MILLRACE_DEVICE inline Candidate candidate_end_to_end(const HeadJob& job, int slot, int index) {
  const float* row = job.output + (static_cast<std::int64_t>(slot) * job.candidates + index) * 6;
  float finite = 0;
  for (int i = 0; i < 6; ++i) finite += row[i] * 0;
  // The conversion of a number outside the range of int would be undefined.
  int class_id = row[5] >= 0 && row[5] < static_cast<float>(job.classes) ? static_cast<int>(row[5]) : -1;
  if (static_cast<float>(class_id) != row[5]) class_id = -1;
  return {{row[0], row[1], row[2], row[3]}, row[4], class_id, finite == 0};
}

/// Handles one row of the output of one slot. A candidate has the score, a wanted class, and area in the picture.
/// count() counts a candidate, and returns the number before. Threads may run in any order, because keys have one.
template <class Count>
MILLRACE_DEVICE std::int32_t find_candidate(const HeadJob& job, int slot, int index, const Count& count) {
  const std::int64_t first = static_cast<std::int64_t>(slot) * job.candidates, at = first + index;
  const LetterboxGeometry& geometry = job.geometry[slot];
  if (geometry.picture_width == 0) return 0;
  const Candidate found = job.end_to_end ? candidate_end_to_end(job, slot, index) : candidate_v8(job, slot, index);
  if (!found.finite) return not_finite;
  if (!(found.score >= job.min_score)) return 0;
  const float sum = found.box.x0 + found.box.y0 + found.box.x1 + found.box.y1;
  if (!(sum * 0 == 0)) return infinite_box;
  if (found.class_id < 0) return unknown_class;
  if (job.wanted != nullptr && job.wanted[found.class_id] == 0) return 0;
  const Box shown = to_picture(found.box, geometry);
  const double area = static_cast<double>(shown.x1 - shown.x0) * static_cast<double>(shown.y1 - shown.y0);
  if (!(shown.x1 > shown.x0 && shown.y1 > shown.y0) || area < job.min_area) return 0;
  job.boxes[at] = found.box;
  job.best[at] = found.class_id;
  job.keys[first + count()] = key_of(found.score, index);
  return 0;
}

/// The same for all rows of a slot, on the host: one thread after another.
inline void find_candidates(const HeadJob& job, int slot) {
  for (int i = 0; i < job.candidates; ++i)
    job.faults[slot] |= find_candidate(job, slot, i, [&] { return job.found[slot]++; });
}

MILLRACE_DEVICE inline bool overlaps(const Box& kept, const Box& box, double threshold) {
  const float width = lower_of(box.x1, kept.x1) - higher_of(box.x0, kept.x0),
              height = lower_of(box.y1, kept.y1) - higher_of(box.y0, kept.y0);
  const float intersection = higher_of(0.0F, width) * higher_of(0.0F, height);
  const float area = (box.x1 - box.x0) * (box.y1 - box.y0), kept_area = (kept.x1 - kept.x0) * (kept.y1 - kept.y0);
  return static_cast<double>(intersection / (kept_area + area - intersection)) > threshold;
}

/// One thread that does the work of a block, on the host.
struct OneThread {
  int rank = 0, size = 1;
  [[nodiscard]] std::uint64_t max(std::uint64_t value) const { return value; }
};

/// Greedy suppression of one slot by the threads of `block`. Each round keeps the best remaining candidate.
/// In the same pass, the threads remove its overlaps and find the next best.
/// `block` has rank, size, and max(value) over its threads. All threads call max, and it is a barrier.
template <class Block>
MILLRACE_DEVICE void keep_best(const HeadJob& job, int slot, const Block& block) {
  const std::int64_t first = static_cast<std::int64_t>(slot) * job.candidates;
  std::uint64_t* keys = job.keys + first;
  const int found = job.found[slot];
  int count = 0, last = -1;
  while (count < job.max_kept) {
    std::uint64_t best = 0;
    for (int i = block.rank; i < found; i += block.size) {
      const std::uint64_t key = keys[i];
      if (key == 0) continue;
      const int own = candidate_of(key);
      const bool same = last >= 0 && (!job.class_aware || job.best[first + own] == job.best[first + last]);
      if (own == last || (same && overlaps(job.boxes[first + last], job.boxes[first + own], job.iou_threshold))) {
        keys[i] = 0;
      } else {
        best = higher_of(best, key);
      }
    }
    best = block.max(best);
    if (best == 0) break;
    last = candidate_of(best);
    if (block.rank == 0) {
      job.kept[static_cast<std::int64_t>(slot) * job.max_kept + count] = {
          to_picture(job.boxes[first + last], job.geometry[slot]), score_of(best), job.best[first + last]};
    }
    ++count;
  }
  if (block.rank == 0) {
    job.summaries[2 * slot] = job.faults[slot];
    job.summaries[2 * slot + 1] = count;
  }
}

}  // namespace find_boxes_kernel
}  // namespace millrace
