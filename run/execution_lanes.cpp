// What a lane does with a batch, and what becomes of one for which memory runs out.

#include <algorithm>
#include <iterator>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "gpu/stream.hpp"
#include "io/files/source_names.hpp"
#include "models/engine.hpp"
#include "run/execution.hpp"
#include "run/run_ended.hpp"

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
    redo(batch, lane);
    batch.through_lane = true;
  } catch (const DeviceError& error) {
    throw RunEnded(link.info.name, DeviceError(link.info.name + ", " + name_of(batch) + ": " + error.what() +
                                               "; nothing more can be done on this device by this process: the same "
                                               "command goes on from here"));
  }
}

// In halves, after all that the lane holds was let go. A single picture is tried once more too: then it fails.
void Execution::redo(Batch& batch, std::size_t lane) {
  let_go(batch, lane);
  ++counters_.redone_batches;
  std::vector<std::shared_ptr<Frame>> left;
  std::copy_if(batch.frames.begin(), batch.frames.end(), std::back_inserter(left),
               [](const auto& frame) { return !frame->failed(); });
  const auto middle = left.begin() + static_cast<std::ptrdiff_t>(left.size() / 2);
  for (const auto& [begin, end] : {std::pair{left.begin(), middle}, {middle, left.end()}}) {
    if (begin == end) continue;
    Batch part({begin, end});
    for (const auto& frame : part.frames) prepare_again(*frame);
    std::string stage;
    const bool done = fits([&] {
      std::size_t index = 0;
      for (const ChainLink* link : setup_.chain.of(Section::lane)) {
        stage = link->info.name;
        if (!part.empty()) run_stage(*link, *lane_stages_[lane][index++], part);
      }
    });
    if (done) continue;
    if (part.frames.size() > 1) {
      redo(part, lane);
      continue;
    }
    let_go(part, lane);
    part.frames.front()->fail(stage, devices_[lane]->stream() == nullptr ? Reason::oom_host : Reason::oom_device,
                              "there was not enough memory for this picture, not even alone");
  }
}

// What an attempt left behind, and what is kept for later.
void Execution::let_go(Batch& batch, std::size_t lane) {
  devices_[lane]->abandon();
  batch.columns.clear();
  for (const ChainLink* link : setup_.chain.of(Section::lane)) {
    for (const auto& frame : batch.frames) {
      if (frame->failed()) continue;
      for (const FieldBase* field : link->info.writes) frame->columns.drop(*field);
    }
  }
  for (const auto& stage : lane_stages_[lane]) stage->trim();
  devices_[lane]->wait();
  if (Stream* const stream = devices_[lane]->stream()) stream->trim();
}

// Pixels are gone when inputs were made of them: then the picture is decoded again, outside of the gate, which has
// given its bytes to others. These are half a batch a lane at most.
void Execution::prepare_again(Frame& frame) {
  frame.split = frame.again = true;
  const auto links = setup_.chain.of(Section::frame);
  frame.columns.allow(nullptr);
  const bool all_there = std::all_of(links.begin(), links.end(), [&](const ChainLink* link) {
    return std::all_of(link->info.writes.begin(), link->info.writes.end(),
                       [&](const FieldBase* field) { return frame.columns.has(*field); });
  });
  if (all_there) return;
  frame.columns.clear();
  std::string stage = "read";
  try {
    read(frame);
    std::size_t index = 0;
    for (const ChainLink* link : links) {
      if (frame.failed()) break;
      stage = link->info.name;
      run_stage(*link, *frame_stages_[index++], frame);
    }
  } catch (...) {
    fail_frame(frame, stage, std::current_exception());
  }
}

}  // namespace millrace
