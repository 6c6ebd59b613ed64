#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/byte_gate.hpp"

namespace millrace {

/// One picture on its way to its batch. The plan says which batch (an id that is unique over the run), which of its
/// slots, and how many slots that batch has. `failed()` frames skip the frame stages that are left.
template <class T>
concept GraphFrame = requires(T& frame, const T& seen, ByteCredit credit) {
  { seen.batch_id() } -> std::convertible_to<std::int64_t>;
  { seen.slot() } -> std::convertible_to<int>;
  { seen.batch_size() } -> std::convertible_to<int>;
  { seen.failed() } -> std::convertible_to<bool>;
  frame.set_credit(std::move(credit));  // to be kept beside the pixels and released with them
};

/// The frames of one planned batch. An `empty()` batch has nothing left to work on (all its frames failed): it skips
/// the lane and batch stages that are left and goes to commit.
template <class T>
concept GraphBatch = requires(const T& seen) {
  { seen.empty() } -> std::convertible_to<bool>;
};

/// A stage of frames or batches on TBB's workers: computes, never blocks. `run` is called on several threads at a time.
template <class Message>
struct Body {
  std::string name;
  std::function<void(Message&)> run;
};

/// A stage of batches on a lane's own thread; `lane` is its number from 0.
template <class Message>
struct LaneBody {
  std::string name;
  std::function<void(Message&, int lane)> run;
};

/// What the graph calls. Bodies are called for one message by one thread at a time; between two calls for the same
/// message the graph synchronises. A body that throws a RunError ends the run; anything else it throws is given to
/// `frame_failed` or `batch_failed`, unless said otherwise here.
template <class Frame, class Batch>
struct GraphBodies {
  /// The next frame in plan order, a batch's frames one after another; nullptr at the end. On a source thread of its
  /// own, may block between two batches. What it throws ends the run.
  std::function<std::shared_ptr<Frame>()> next;
  /// Makes a `next` that blocks return soon; it may then return nullptr instead of beginning a batch. Called at most
  /// once, from any thread, when the run is to stop. Without it `next` must not block for long.
  std::function<void()> stop_next;
  /// Before `read`, on the source's thread: bytes that `read` is going to hold. They must be gone when the frame stages
  /// are over, or when the frame has failed. May be empty: none. What it throws ends the run.
  std::function<std::int64_t(const Frame&)> file_bytes;
  /// Own threads, may block.
  std::function<void(Frame&)> read;
  /// After `read`: bytes of decoded pixels the frame is going to keep, 0 to slab_bytes; and, as passing ones, what the
  /// frame stages take beside them.
  std::function<ByteNeed(const Frame&)> bytes;
  /// One after another on the workers, e.g. decode.
  std::vector<Body<Frame>> frame_stages;
  /// One after another on the lane's thread, e.g. preprocess, detect, segment, postprocess. Without any there is no
  /// lane section.
  std::vector<LaneBody<Batch>> lane_stages;
  /// On each lane's thread, before its first and after its last batch; may be empty. What they throw ends the run.
  std::function<void(int lane)> lane_start, lane_stop;
  /// All frames of a batch by slot, failed ones included. What it throws ends the run.
  std::function<std::shared_ptr<Batch>(std::vector<std::shared_ptr<Frame>>)> make_batch;
  /// One after another on the workers, e.g. encode.
  std::vector<Body<Batch>> batch_stages;
  /// A single thread of its own, in order of arrival; may block. What it throws ends the run. Afterwards the graph lets
  /// go of the batch.
  std::function<void(Batch&)> commit;
  /// Mark the frame as failed: a frame stage, read or bytes threw.
  std::function<void(Frame&, const std::string& stage, std::exception_ptr)> frame_failed;
  /// Mark the batch's frames as failed: a lane or batch stage threw for the whole batch.
  std::function<void(Batch&, const std::string& stage, std::exception_ptr)> batch_failed;
};

}  // namespace millrace
