#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.hpp"
#include "gpu/device_code.hpp"
#include "gpu/outline.hpp"

namespace millrace {

class Device;
class Stream;

/// A mask at full size: COCO runs down the columns, zeros first.
struct OutlinedMask {
  std::vector<std::uint32_t> counts;
  float predicted_iou = 0;
  std::string fault;  ///< not empty: logits or predicted IoU are not finite, so there is no mask
};

/// Row `row` of a decoder's output, the geometry of its picture, and the destination of the mask.
struct MaskTarget {
  int row = 0;
  MaskGeometry geometry;
  std::shared_ptr<OutlinedMask> mask;
};

/// Outputs of one decoder call: logits f32 [N, h, w] and predicted IoU f32 [N].
struct MaskCall {
  Tensor logits, predicted_iou;
  std::vector<MaskTarget> targets;
};

/// Operation `outline`: computes the masks of decoder outputs. They are filled after the wait.
/// All masks come down in one copy, whose size is estimated from earlier masks.
/// If that is too small, a second copy and wait follow. Throws like check_geometry().
void outline(Device& device, std::span<const MaskCall> calls, float threshold);

/// The resizings of one geometry. Their scales are computed on the host, so kernels do not divide.
struct MaskResizing {
  explicit MaskResizing(const MaskGeometry& g)
      : middle_x(g.logits_width, g.input_width),
        middle_y(g.logits_height, g.input_height),
        outer_x(g.crop_width, g.picture_width),
        outer_y(g.crop_height, g.picture_height) {}

  BilinearAxis middle_x, middle_y;  ///< from the logits to the input
  BilinearAxis outer_x, outer_y;    ///< from the part of the input that shows the picture to the picture
};

/// 32 logits below each other, on their sides of the threshold. Bit i is for row i.
/// Both bits: the logit is too near to the threshold. None: there is no such row.
struct LogitSides {
  std::uint32_t inside = 0, outside = 0;
};

/// The picture rows [from, until) of a logit row: the first that needs no logit row above it, and the end of those that
/// need none below it.
struct RowRange {
  std::int32_t from, until;
};

/// The masks of one decoder call. Pointers are to device memory.
///
/// A mask is stored as the positions where its value changes, in COCO's order down the columns:
/// position = x * picture_height + y. The first run is outside the mask.
/// First, kernels find the sides of all logits. Then a thread handles one of the `stretches` of a picture column: it
/// counts changes, and after a sum over all counts it writes them.
struct OutlineJob {
  static constexpr int stretches = 4;  ///< of a column: outlines down a column take long, so threads share them
  static constexpr int few = 2;        ///< changes of a stretch that are kept: only those with more are computed twice

  /// Inputs of the CPU, which needs none of the fields below. `outliner` keeps the object of the last geometry.
  struct Request {
    const MaskCall* call = nullptr;
    std::optional<MaskOutliner>* outliner = nullptr;
  } request;

  const float* logits = nullptr;            ///< [N, logits_height, logits_width]
  const float* predicted_iou = nullptr;     ///< [N]
  const std::int32_t* slots = nullptr;      ///< [N], index into resizings; -1: this mask is not needed
  const MaskResizing* resizings = nullptr;  ///< by slot
  int masks = 0, geometries = 0;            ///< N, number of slots
  int logits_width = 0, logits_height = 0;
  int widest = 0;  ///< width of the widest picture
  float threshold = 0;
  bool counted = false;  ///< all scratch memory is valid: run only the last step, with another capacity
  // Scratch memory:
  LogitSides* sides = nullptr;          ///< [N, words(), logits_width]
  std::uint32_t* not_finite = nullptr;  ///< [N, words()]: whether one of these rows has NaN or infinity
  RowRange* ranges = nullptr;           ///< [geometries, logits_height]
  std::uint32_t* counts = nullptr;      ///< [all_stretches() + 1]: changes, then those of all stretches before
  std::uint32_t* kept = nullptr;        ///< [few, all_stretches()]: positions of the first changes
  // Outputs, one after another in memory:
  std::uint32_t* starts = nullptr;     ///< [N + 1]: index of each mask's first position; the last is the total
  float* iou = nullptr;                ///< [N]: predicted_iou
  std::uint32_t* faulty = nullptr;     ///< [N]: whether a logit is NaN or infinite
  std::uint32_t* positions = nullptr;  ///< [capacity]; positions beyond it are not written
  std::uint32_t capacity = 0;

  /// Number of LogitSides in a column.
  MILLRACE_DEVICE int words() const { return (logits_height + 31) / 32; }
  MILLRACE_DEVICE std::int64_t all_stretches() const { return static_cast<std::int64_t>(masks) * widest * stretches; }
  /// Index of a stretch in the order of positions.
  MILLRACE_DEVICE std::int64_t stretch(int n, int x, int s) const {
    return (static_cast<std::int64_t>(n) * widest + x) * stretches + s;
  }
};

/// Queues the kernels (outline.cu).
void launch(const OutlineJob& job, Stream& stream);

namespace outline_kernel {

/// Index of the lowest set bit. std::countr_zero() is wrong in code of nvcc 13.0: it returns 32.
MILLRACE_DEVICE inline int lowest_bit(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __ffs(static_cast<int>(bits)) - 1;
#else
  return std::countr_zero(bits);
#endif
}

/// First step, for each mask and column of the logits, 32 rows at a time: finds their sides.
/// Returns whether all of these logits are finite.
MILLRACE_DEVICE inline bool classify(const OutlineJob& job, int n, int word, int x) {
  const std::int64_t width = job.logits_width;
  const int first = 32 * word, rows = job.logits_height - first < 32 ? job.logits_height - first : 32;
  const float* logit = job.logits + (static_cast<std::int64_t>(n) * job.logits_height + first) * width + x;
  LogitSides sides;
  float finite = 0;
  for (int i = 0; i < rows; ++i, logit += width) {
    const float value = *logit, size = std::fabs(value), least = std::fabs(job.threshold);
    // A pixel is a sum of logits with weights of 0 to 1. Two resizings round each of its terms about a dozen times, each
    // time by at most 2^-24 of it. So a margin of 2^-18 of each logit is enough, five times.
    const float margin = (size > least ? size : least) * 0x1p-18F + 1.17549435e-38F;
    sides.inside |= static_cast<std::uint32_t>(!(value < job.threshold - margin)) << i;
    sides.outside |= static_cast<std::uint32_t>(!(value > job.threshold + margin)) << i;
    finite += value * 0;
  }
  job.sides[(static_cast<std::int64_t>(n) * job.words() + word) * width + x] = sides;
  return finite == 0;
}

/// Returns the first and last logit row that a picture row depends on.
MILLRACE_DEVICE inline int first_logit_row(const MaskResizing& r, int row) {
  return r.middle_y.tap(r.outer_y.tap(row).index0).index0;
}
MILLRACE_DEVICE inline int last_logit_row(const MaskResizing& r, int row) {
  return r.middle_y.tap(r.outer_y.tap(row).index1).index1;
}

/// First step, for each geometry and logit row.
MILLRACE_DEVICE inline void find_range(const OutlineJob& job, int slot, int y) {
  const MaskResizing& r = job.resizings[slot];
  // The logit rows of a picture row never fall from one row to the next, so binary search works.
  const auto first_row = [&](const auto& reached) {
    int begin = 0, end = r.outer_y.to;
    while (begin < end) {
      const int middle = (begin + end) / 2;
      if (reached(middle))
        end = middle;
      else
        begin = middle + 1;
    }
    return begin;
  };
  job.ranges[static_cast<std::int64_t>(slot) * job.logits_height + y] = {
      first_row([&](int row) { return first_logit_row(r, row) >= y; }),
      first_row([&](int row) { return last_logit_row(r, row) > y; })};
}

/// One column of a picture through both resizings, with the values of MaskOutliner.
class Column {
 public:
  MILLRACE_DEVICE Column(const OutlineJob& job, int n, int x) : job_(job), r_(job.resizings[job.slots[n]]), n_(n) {
    outer_ = r_.outer_x.tap(x);
    middle0_ = r_.middle_x.tap(outer_.index0);
    middle1_ = r_.middle_x.tap(outer_.index1);
  }

  /// Returns whether the pixel in this row is in the mask.
  MILLRACE_DEVICE bool value(int row) const {
    const int low = first_logit_row(r_, row), high = last_logit_row(r_, row);
    bool inside = false, outside = false;
    for (int word = low / 32; word <= high / 32; ++word) {
      const LogitSides sides = sides_of(word);
      std::uint32_t rows = 0xffffffffU;
      if (word == low / 32) rows &= 0xffffffffU << (low % 32);
      if (word == high / 32) rows &= 0xffffffffU >> (31 - high % 32);
      inside = inside || (sides.inside & rows) != 0;
      outside = outside || (sides.outside & rows) != 0;
    }
    if (inside != outside) return inside;
    Kept kept;
    return computed(row, kept);
  }

  /// Calls change(row) for each row in [row, end) whose value differs from the row before.
  /// `before` is the value before the first of them.
  template <class Change>
  MILLRACE_DEVICE void walk(int row, int end, bool before, const Change& change) const {
    Kept kept;
    const auto compute = [&](int until) {
      for (; row < until; ++row) {
        const bool now = computed(row, kept);
        if (now != before) change(row), before = now;
      }
    };
    const RowRange* ranges = job_.ranges + static_cast<std::int64_t>(job_.slots[n_]) * job_.logits_height;
    const int last = last_logit_row(r_, end - 1);
    int y = first_logit_row(r_, row);
    LogitSides sides = sides_of(y / 32);
    while (y <= last) {
      // The next logit rows that are on the same side.
      const int y_begin = y;
      const bool inside = (sides.inside >> (y % 32) & 1) != 0, outside = (sides.outside >> (y % 32) & 1) != 0;
      while (y <= last) {
        const std::uint32_t others =
            ((inside ? ~sides.inside : sides.inside) | (outside ? ~sides.outside : sides.outside)) >> (y % 32);
        if (others != 0) {
          y += lowest_bit(others);
          break;
        }
        y = (y / 32 + 1) * 32;
        if (y <= last) sides = sides_of(y / 32);
      }
      if (inside == outside) continue;
      // The picture rows that depend on no other logit rows than these.
      const int from = ranges[y_begin].from, until = ranges[y - 1].until;
      const int clear = from > row ? from : row, clear_end = until < end ? until : end;
      if (clear >= clear_end) continue;
      compute(clear);
      if (inside != before) change(clear), before = inside;
      row = clear_end;
    }
    compute(end);
  }

 private:
  /// What neighbouring rows of the column share.
  struct Kept {
    int crop0 = -1, crop1 = -1;    // rows of the cropped input
    float value0 = 0, value1 = 0;  // their values
    int y0 = -1, y1 = -1;          // rows of the logits
    float left0 = 0, right0 = 0;   // row y0 at middle0_ and middle1_
    float left1 = 0, right1 = 0;   // row y1
  };

  MILLRACE_DEVICE static float mix(const BilinearTap& tap, float a, float b) {
    return std::fma(tap.weight0, a, tap.weight1 * b);
  }

  /// The sides of 32 logit rows, over all logit columns that this column depends on.
  MILLRACE_DEVICE LogitSides sides_of(int word) const {
    const LogitSides* row = job_.sides + (static_cast<std::int64_t>(n_) * job_.words() + word) * job_.logits_width;
    LogitSides all;
    for (int x = middle0_.index0; x <= middle1_.index1; ++x) {
      const LogitSides own = row[x];
      all.inside |= own.inside;
      all.outside |= own.outside;
    }
    return all;
  }

  /// Interpolates a row of the logits at two columns of the input.
  MILLRACE_DEVICE void across(int y, float& left, float& right) const {
    const float* row = job_.logits + (static_cast<std::int64_t>(n_) * job_.logits_height + y) * job_.logits_width;
    left = mix(middle0_, row[middle0_.index0], row[middle0_.index1]);
    right = mix(middle1_, row[middle1_.index0], row[middle1_.index1]);
  }

  /// Returns a row of the cropped input at this picture column.
  MILLRACE_DEVICE float crop_row(int input_y, Kept& kept) const {
    const BilinearTap tap = r_.middle_y.tap(input_y);
    if (tap.index0 != kept.y0) {
      if (tap.index0 == kept.y1)
        kept.left0 = kept.left1, kept.right0 = kept.right1;
      else
        across(tap.index0, kept.left0, kept.right0);
      kept.y0 = tap.index0;
    }
    if (tap.index1 != kept.y1) {
      if (tap.index1 == kept.y0)
        kept.left1 = kept.left0, kept.right1 = kept.right0;
      else
        across(tap.index1, kept.left1, kept.right1);
      kept.y1 = tap.index1;
    }
    return mix(outer_, mix(tap, kept.left0, kept.left1), mix(tap, kept.right0, kept.right1));
  }

  /// Computes whether the pixel in this row is in the mask.
  MILLRACE_DEVICE bool computed(int row, Kept& kept) const {
    const BilinearTap tap = r_.outer_y.tap(row);
    if (tap.index0 != kept.crop0) kept.value0 = tap.index0 == kept.crop1 ? kept.value1 : crop_row(tap.index0, kept);
    if (tap.index1 != kept.crop1) kept.value1 = tap.index1 == tap.index0 ? kept.value0 : crop_row(tap.index1, kept);
    kept.crop0 = tap.index0;
    kept.crop1 = tap.index1;
    return mix(tap, kept.value0, kept.value1) > job_.threshold;
  }

  const OutlineJob& job_;
  const MaskResizing& r_;
  int n_;
  BilinearTap outer_, middle0_, middle1_;
};

/// Whether mask n is needed but has logits that are NaN or infinite.
MILLRACE_DEVICE inline bool is_faulty(const OutlineJob& job, int n) {
  bool faulty = false;
  for (int word = 0; job.slots[n] >= 0 && word < job.words(); ++word)
    faulty = faulty || job.not_finite[static_cast<std::int64_t>(n) * job.words() + word] != 0;
  return faulty;
}

/// Calls change(position) for each change in stretch s of column x of mask n, which is needed and not faulty.
template <class Change>
MILLRACE_DEVICE void walk(const OutlineJob& job, int n, int x, int s, const Change& change) {
  const MaskResizing& r = job.resizings[job.slots[n]];
  const int height = r.outer_y.to, rows = (height + OutlineJob::stretches - 1) / OutlineJob::stretches;
  const int begin = s * rows, end = begin + rows < height ? begin + rows : height;
  if (x >= r.outer_x.to || begin >= end) return;
  const Column column(job, n, x);
  const bool before = begin > 0 ? column.value(begin - 1) : x > 0 && Column(job, n, x - 1).value(height - 1);
  column.walk(begin, end, before, [&](int y) {
    change(static_cast<std::uint32_t>(x) * static_cast<std::uint32_t>(height) + static_cast<std::uint32_t>(y));
  });
}

/// Second step, for each mask, column and stretch: counts changes. A sum over all counts follows.
MILLRACE_DEVICE inline void count(const OutlineJob& job, int n, int x, int s) {
  const std::int64_t own = job.stretch(n, x, s), all = job.all_stretches();
  std::uint32_t count = 0;
  if (job.slots[n] >= 0 && !is_faulty(job, n)) {
    walk(job, n, x, s, [&](std::uint32_t position) {
      if (count < OutlineJob::few) job.kept[count * all + own] = position;
      ++count;
    });
  }
  job.counts[own] = count;
  if (own == all - 1) job.counts[all] = 0;
}

/// Last step, for each mask, column and stretch: writes positions.
MILLRACE_DEVICE inline void write(const OutlineJob& job, int n, int x, int s) {
  const std::int64_t own = job.stretch(n, x, s), all = job.all_stretches();
  std::uint32_t at = job.counts[own];
  const std::uint32_t count = job.counts[own + 1] - at;
  if (x == 0 && s == 0) {
    job.starts[n] = at;
    job.iou[n] = job.predicted_iou[n];
    job.faulty[n] = static_cast<std::uint32_t>(is_faulty(job, n));
    if (n == job.masks - 1) job.starts[job.masks] = job.counts[all];
  }
  const auto put = [&](std::uint32_t position) {
    if (at < job.capacity) job.positions[at] = position;
    ++at;
  };
  if (count <= OutlineJob::few) {
    for (std::uint32_t i = 0; i < count; ++i) put(job.kept[i * all + own]);
  } else {
    walk(job, n, x, s, put);
  }
}

// What the kernels do for all masks, on the host: one thread after another.

inline void classify_all(const OutlineJob& job) {
  for (int n = 0; n < job.masks; ++n) {
    for (int word = 0; word < job.words(); ++word) {
      std::uint32_t& not_finite = job.not_finite[n * job.words() + word];
      not_finite = 0;
      for (int x = 0; x < job.logits_width; ++x) not_finite |= static_cast<std::uint32_t>(!classify(job, n, word, x));
    }
  }
  for (int slot = 0; slot < job.geometries; ++slot) {
    for (int y = 0; y < job.logits_height; ++y) find_range(job, slot, y);
  }
}

template <class Work>
void for_each_stretch(const OutlineJob& job, const Work& work) {
  for (int n = 0; n < job.masks; ++n) {
    for (int x = 0; x < job.widest; ++x) {
      for (int s = 0; s < OutlineJob::stretches; ++s) work(job, n, x, s);
    }
  }
}

}  // namespace outline_kernel
}  // namespace millrace
