#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/trace.hpp"
#include "pipeline/byte_gate.hpp"
#include "pipeline/statistics.hpp"

namespace millrace {

/// A credit, and the admitted frame that has it. The messages of the graph point here.
/// So a copy of a message that TBB still holds keeps no frame alive, and `at` always shows where each frame is.
template <class Frame>
struct FrameInFlight {
  int credit = 0;
  std::int64_t sequence = 0;  ///< position among the admitted frames, from 0
  std::int64_t batch_id = 0;
  int group = 0;
  std::int64_t admitted_ns = 0;           ///< of the graph's clock
  std::shared_ptr<Frame> frame;           ///< set until its batch is made
  ByteCredit file, decode_memory;         ///< bytes of its file and of memory for decoding, until the frame stages end
  bool given_up = false;                  ///< the run was stopped before its last frame stage (or its reading) began
  std::atomic<const Meter*> at{nullptr};  ///< where it is; nullptr if the credit is free
};

/// A batch whose frames have all arrived.
template <class Batch>
struct BatchInFlight {
  std::shared_ptr<Batch> batch;  ///< nullptr if the run ended before it was made, or if it was given up
  std::vector<int> credits;      ///< the credits of its frames
  Trace::Wait waiting;           ///< in the trace, while it waits in a queue
};

}  // namespace millrace
