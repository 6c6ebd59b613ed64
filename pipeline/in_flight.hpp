#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "pipeline/byte_gate.hpp"
#include "pipeline/statistics.hpp"

namespace millrace {

/// A place behind the gate and the admitted frame in it. The graph's messages point here, so that a copy of a message
/// that TBB still holds keeps no frame alive, and so that it is known at any time where each frame is.
template <class Frame>
struct FrameInFlight {
  int place = 0;
  std::int64_t sequence = 0;  ///< position among the admitted frames, from 0
  std::int64_t batch_id = 0;
  std::shared_ptr<Frame> frame;           ///< until its batch is made
  ByteCredit file, beside_pixels;         ///< until the frame stages are over; `file` from before it is read
  bool given_up = false;                  ///< the run was stopped before it was read and through the frame stages
  std::atomic<const Meter*> at{nullptr};  ///< where it is; nullptr when the place is free
};

/// A batch whose frames have all arrived.
template <class Batch>
struct BatchInFlight {
  std::shared_ptr<Batch> batch;  ///< nullptr when the run ended before it was made, or it was given up
  std::vector<int> places;       ///< of its frames
  std::uint64_t waiting = 0;     ///< in a queue, for the trace
};

}  // namespace millrace
