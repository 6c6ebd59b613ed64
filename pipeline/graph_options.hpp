#pragma once

#include <cstdint>

namespace millrace {

/// The limits of a run. None of them changes a result.
struct GraphOptions {
  int max_batch = 0;            ///< frames in the largest planned batch
  int admission_items = 0;      ///< maximum number of frames between admission and commit; at least 2 * max_batch
  std::int64_t slab_bytes = 0;  ///< maximum number of bytes of decoded pixels in one frame
  /// Bytes that all frames together may hold: files (`file_share`), decoded pixels and memory for decoding.
  /// At least 2 * max_batch * slab_bytes.
  /// If a file or the decoding of a picture needs more than is free, it may exceed the budget, but only one at a time.
  std::int64_t byte_budget = 0;
  int read_threads = 4;  ///< threads that read; they block, so they do not count as cores
  int read_ahead = 16;   ///< maximum number of frames admitted but without bytes for their pixels
  int lanes = 1;         ///< batches on devices at a time; each lane has a thread of its own
  int workers = 1;       ///< cores that compute outside lanes: the slots of the TBB arena
  /// Nice levels, 0 to 19, that workers add to the level of the thread that calls run().
  /// With more than 0, lanes on the same cores come first.
  int worker_nice = 0;
  int groups = 1;  ///< groups of frames, which have statistics of their own (GraphBodies::group)
};

/// `byte_budget` has this number of equal parts. One of them is for files.
constexpr int budget_parts = 8;

/// The part of `byte_budget` for files, from before they are read until they are decoded.
/// It is separate, so that waiting files cannot take the memory of the pixels that they wait for.
constexpr std::int64_t file_share(const GraphOptions& options) { return options.byte_budget / budget_parts; }

/// Throws std::invalid_argument, which names the option, its value and the smallest allowed value.
///
/// The minimum is two batches of items and bytes. Frames are admitted and granted bytes in plan order.
/// So the frames of the oldest unfinished batch always get their credits, and the batch can be completed.
/// One batch would be enough for that, and `file_share` leaves it. The second lets the next batch load meanwhile.
void check(const GraphOptions& options);

}  // namespace millrace
