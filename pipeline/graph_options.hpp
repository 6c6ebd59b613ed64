#pragma once

#include <cstdint>

namespace millrace {

/// The numbers that bound a run. None of them changes a result.
struct GraphOptions {
  int max_batch = 0;             ///< the largest planned batch, in frames
  int admission_items = 0;       ///< frames between admission and commit at any time; at least 2 * max_batch
  std::int64_t slab_bytes = 0;   ///< the most decoded pixels one frame may hold
  std::int64_t byte_budget = 0;  ///< what all frames hold together: files (`file_share`), and decoded pixels with what
                                 ///< decoding takes beside them; at least 2 * max_batch * slab_bytes. A file, or the
                                 ///< decoding of a picture, that needs more than there is comes in beyond it, one at a
                                 ///< time
  int read_threads = 4;          ///< threads that read; they block, so they are not counted as cores
  int read_ahead = 16;           ///< frames admitted but not yet granted bytes of pixels
  int lanes = 1;                 ///< batches on devices at a time, each on a thread of its own
  int workers = 1;               ///< cores that compute outside lanes: the slots of the TBB arena
  int worker_nice = 0;  ///< nice levels the workers' threads stand behind the caller of run(), 0 to 19: lanes on the
                        ///< same cores come first
};

/// The part of `byte_budget` that files take from before they are read until they are decoded. A part of its own, so
/// that files that wait cannot keep the pixels back they wait for.
constexpr std::int64_t file_share(const GraphOptions& options) { return options.byte_budget / 8; }

/// Throws std::invalid_argument that names the option, its value and the smallest value allowed.
///
/// Two batches' worth of items and of bytes are the least because frames are admitted and granted bytes in plan order:
/// the frames of the oldest unfinished batch are then always among those that got credits, so it can be completed. One
/// batch's worth would do for that, which `file_share` leaves; the other lets the next batch load in the meantime.
void check(const GraphOptions& options);

}  // namespace millrace
