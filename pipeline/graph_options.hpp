#pragma once

#include <cstdint>

namespace millrace {

/// The numbers that bound a run. None of them changes a result.
struct GraphOptions {
  int max_batch = 0;             ///< the largest planned batch, in frames
  int admission_items = 0;       ///< frames between admission and commit at any time; at least 2 * max_batch
  std::int64_t slab_bytes = 0;   ///< the most decoded pixels one frame may hold
  std::int64_t byte_budget = 0;  ///< decoded pixels of all frames together; at least 2 * max_batch * slab_bytes
  int read_threads = 4;          ///< threads that read; they block, so they are not counted as cores
  int read_ahead = 16;           ///< frames admitted but not yet granted bytes: bounds the encoded bytes in memory
  int lanes = 1;                 ///< batches on devices at a time, each on a thread of its own
  int workers = 1;               ///< cores that compute outside lanes: the slots of the TBB arena
  int worker_nice = 0;  ///< nice levels the workers' threads stand behind the caller of run(), 0 to 19: lanes on the
                        ///< same cores come first
};

/// Throws std::invalid_argument that names the option, its value and the smallest value allowed.
///
/// Two batches' worth of items and of bytes are the least because frames are admitted and granted bytes in plan order:
/// the frames of the oldest unfinished batch are then always among those that got credits, so it can be completed.
void check(const GraphOptions& options);

}  // namespace millrace
