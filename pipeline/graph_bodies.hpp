#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "pipeline/byte_gate.hpp"

namespace millrace {

/// One picture on its way to its batch.
/// The plan sets its batch (an id that is unique in the run), its slot in the batch and the number of slots.
/// A frame that has `failed()` skips the remaining frame stages.
template <class T>
concept GraphFrame = requires(T& frame, const T& seen, ByteCredit credit) {
  { seen.batch_id() } -> std::convertible_to<std::int64_t>;
  { seen.slot() } -> std::convertible_to<int>;
  { seen.batch_size() } -> std::convertible_to<int>;
  { seen.failed() } -> std::convertible_to<bool>;
  frame.set_credit(std::move(credit));  // keep it with the pixels and release it with them
};

/// The frames of one planned batch.
/// A batch is `empty()` if all its frames failed. It then skips the remaining lane and batch stages and is committed.
template <class T>
concept GraphBatch = requires(const T& seen) {
  { seen.empty() } -> std::convertible_to<bool>;
};

/// A stage of frames or batches on TBB's workers. It computes and never blocks; several threads call `run` at a time.
template <class Message>
struct Body {
  std::string name;
  std::function<void(Message&)> run;
};

/// A stage of batches on the thread of a lane; `lane` is the number of the lane, from 0.
template <class Message>
struct LaneBody {
  std::string name;
  std::function<void(Message&, int lane)> run;
};

/// The functions that the graph calls.
/// Only one thread at a time works on a message; the graph synchronises between two calls for the same message.
/// If a body throws a RunError, the run ends. Any other exception goes to `frame_failed` or `batch_failed`,
/// unless the comment on the body says that it ends the run.
template <class Frame, class Batch>
struct GraphBodies {
  /// Returns the next frame in plan order, the frames of a batch one after another, and nullptr at the end.
  /// Called on a thread of its own; may block between two batches. Any exception ends the run.
  std::function<std::shared_ptr<Frame>()> next;
  /// Interrupts a blocked `next`, which then returns soon. It may return nullptr instead of beginning a batch.
  /// Called at most once, from any thread, when the run is to stop. May be empty if `next` never blocks for long.
  std::function<void()> stop_next;
  /// Called on the source's thread: returns the group of the frame, from 0 to GraphOptions::groups - 1.
  /// All frames of a batch have the same. May be empty: all frames are of group 0. Any exception ends the run.
  std::function<int(const Frame&)> group;
  /// Called on the source's thread before `read`: returns the bytes that `read` will hold.
  /// The frame must release them before its frame stages end, or when it fails.
  /// May be empty, which means 0 bytes. Any exception ends the run.
  std::function<std::int64_t(const Frame&)> file_bytes;
  /// Called on threads of its own; may block.
  std::function<void(Frame&)> read;
  /// For traces: returns the file of the frame. May be empty.
  std::function<std::string_view(const Frame&)> file;
  /// Called after `read`: returns the bytes that the frame needs.
  /// Kept bytes are decoded pixels, 0 to slab_bytes. Passing bytes are additional memory for the frame stages.
  std::function<ByteNeed(const Frame&)> bytes;
  /// Run one after another on the workers, e.g. decode.
  std::vector<Body<Frame>> frame_stages;
  /// Run one after another on the thread of a lane, e.g. preprocess, detect, segment, postprocess.
  /// If empty, there is no lane section.
  std::vector<LaneBody<Batch>> lane_stages;
  /// Called on the thread of each lane, before its first and after its last batch. May be empty.
  /// Any exception ends the run.
  std::function<void(int lane)> lane_start, lane_stop;
  /// Makes a batch from its frames, ordered by slot, including failed ones. Any exception ends the run.
  std::function<std::shared_ptr<Batch>(std::vector<std::shared_ptr<Frame>>)> make_batch;
  /// Run one after another on the workers, e.g. encode.
  std::vector<Body<Batch>> batch_stages;
  /// Called on a single thread of its own, in the order in which batches arrive; may block. Any exception ends the run.
  /// Afterwards the graph releases the batch.
  std::function<void(Batch&)> commit;
  /// Marks the frame as failed, after a frame stage, `read` or `bytes` threw.
  std::function<void(Frame&, const std::string& stage, std::exception_ptr)> frame_failed;
  /// Marks the frames of the batch as failed, after a lane or batch stage threw for the whole batch.
  std::function<void(Batch&, const std::string& stage, std::exception_ptr)> batch_failed;
};

}  // namespace millrace
