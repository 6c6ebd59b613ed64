// What a lane does with a batch, and what becomes of one for which memory runs out.

#include <new>
#include <string>

#include "apps/execution.hpp"
#include "apps/run_ended.hpp"
#include "gpu/stream.hpp"
#include "io/source_names.hpp"
#include "models/engine.hpp"

namespace millrace {
namespace {

std::string name_of(const Batch& batch) {
  const std::size_t others = batch.frames.size() - 1;
  return "batch " + std::to_string(batch.place().batch) + " (" + display_name(batch.frames.front()->item.path) +
         (others == 0 ? "" : " and " + std::to_string(others) + " more") + ")";
}

/// Does `work`; false where memory ran out for it.
template <class Work>
bool fits(const Work& work) {
  try {
    work();
    return true;
  } catch (const OutOfMemoryError&) {
  } catch (const std::bad_alloc&) {
  }
  return false;
}

}  // namespace

// Calls of models that do not fit are made smaller by the stages themselves. What is left has to do with all that a
// batch holds: its pictures, the models' inputs, embeddings, logits.
void Execution::run_in_lane(std::size_t stage, Batch& batch, std::size_t lane) {
  if (batch.through_lane) return;
  const ChainLink& link = *setup_.chain.of(Section::lane)[stage];
  try {
    if (fits([&] { run_stage(link, *lane_stages_[lane][stage], batch); })) return;
    redo_in_halves(batch, lane, link.info.name);
    batch.through_lane = true;
  } catch (const DeviceError& error) {
    throw RunEnded(link.info.name, DeviceError(link.info.name + ", " + name_of(batch) + ": " + error.what() +
                                               "; nothing more can be done on this device by this process: the same "
                                               "command goes on from here"));
  }
}

// From the files on, since pixels are gone when inputs are made. A picture for which there is not enough memory even
// alone fails.
void Execution::redo_in_halves(Batch& batch, std::size_t lane, const std::string& stage) {
  Stream* const stream = devices_[lane]->stream();
  batch.columns.clear();
  std::vector<std::shared_ptr<Frame>> left;
  for (const auto& frame : batch.frames) {
    if (frame->failed()) continue;
    frame->columns.clear();
    left.push_back(frame);
  }
  devices_[lane]->wait();  // for what the attempt left behind, then to let go of it
  for (const auto& each : lane_stages_[lane]) each->trim();
  if (stream != nullptr) stream->trim();
  if (left.size() < 2) {
    for (const auto& frame : left) {
      frame->fail(stage, stream == nullptr ? Reason::oom_host : Reason::oom_device,
                  "there was not enough memory for this picture, not even alone");
    }
    return;
  }
  ++counters_.redone_batches;
  const auto middle = left.begin() + static_cast<std::ptrdiff_t>(left.size() / 2);
  for (const auto& [begin, end] : {std::pair{left.begin(), middle}, {middle, left.end()}}) {
    Batch half({begin, end});
    for (const auto& frame : half.frames) {
      decode_again(*frame);
      frame->split = true;
    }
    std::string at = stage;
    const bool done = fits([&] {
      std::size_t index = 0;
      for (const ChainLink* link : setup_.chain.of(Section::lane)) {
        at = link->info.name;
        if (!half.empty()) run_stage(*link, *lane_stages_[lane][index++], half);
      }
    });
    if (!done) redo_in_halves(half, lane, at);
  }
}

void Execution::decode_again(Frame& frame) {
  std::string stage = "read";
  try {
    read(frame);
    std::size_t index = 0;
    for (const ChainLink* link : setup_.chain.of(Section::frame)) {
      if (frame.failed()) break;
      stage = link->info.name;
      run_stage(*link, *frame_stages_[index++], frame);
    }
  } catch (...) {
    fail_frame(frame, stage, std::current_exception());
  }
}

}  // namespace millrace
