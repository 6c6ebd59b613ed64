#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "pipeline/run_error.hpp"
#include "pipeline/statistics.hpp"

namespace millrace {

/// Frames that are at one place: in a stage, or in the queue before it.
struct Held {
  std::string stage;
  std::int64_t frames = 0;
  std::vector<std::int64_t> batches;  ///< ids of their batches, each once
};

/// Some admitted frames never came out, because a credit was lost.
/// This is a defect of the program. The run can be resumed.
class FramesLost : public RunError {
 public:
  FramesLost(std::int64_t planned, std::int64_t committed, const std::vector<Held>& held);
};

/// How a run of the graph ended.
struct Result {
  std::int64_t planned = 0;    ///< frames admitted
  std::int64_t committed = 0;  ///< frames committed; without an error, planned = committed + given_up
  std::int64_t given_up = 0;   ///< frames that waited before the lanes when the run was stopped
  bool stopped = false;        ///< request_stop() was called before all was done
  /// The exception that ended the run, as it was thrown. FramesLost if frames did not come out.
  std::exception_ptr error;
  std::string error_stage;  ///< the stage that threw it
  std::vector<Held> held;   ///< where the lost frames are; empty unless the error is FramesLost
  Snapshot begun;           ///< judge(begun, finished) is the verdict on the whole run
  Snapshot finished;
};

}  // namespace millrace
