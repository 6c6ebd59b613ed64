#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/decode/decode.hpp"
#include "io/files/read_file.hpp"
#include "io/files/reason.hpp"
#include "io/input/item.hpp"
#include "io/regions/region_source.hpp"
#include "pipeline/byte_gate.hpp"
#include "pipeline/clock.hpp"
#include "stages/field.hpp"

namespace millrace {

/// Where a frame belongs. Which frames share a batch, and their slots, follows from the plan alone.
struct PlanPosition {
  std::int64_t batch = 0;    ///< number of the batch in this attempt, from 0
  int slot = 0;              ///< in the batch, from 0
  int batch_size = 1;        ///< number of slots in the planned batch
  std::int64_t segment = 0;  ///< number of the segment in the plan
  int segment_batch = 0;     ///< number of the batch in its segment, from 0
};

/// A picture in the pipeline: plain data, to which stages add columns.
/// One thread at a time uses a frame. The graph synchronises between stages.
class Frame {
 public:
  Frame(Item planned, PlanPosition where) : item(std::move(planned)), position(where) {}

  std::int64_t batch_id() const { return position.batch; }
  int slot() const { return position.slot; }
  int batch_size() const { return position.batch_size; }
  bool failed() const { return failure.has_value(); }
  void set_credit(ByteCredit taken) { credit = std::move(taken); }

  /// Marks the frame as failed and frees the bytes of its file. If it has failed before, the first failure stays.
  void fail(std::string stage, Reason reason, std::string detail) {
    if (!failure) {
      failure = Failure{std::move(stage), reason, std::move(detail)};
      failed_ns = SteadyClock().now_ns();
    }
    file = {};  // the gate gets back the bytes of a failed frame, so its file must not stay in memory
    region = nullptr;
  }

  Item item;
  PlanPosition position;
  FileBytes file;    ///< set by reading, freed by decoding or a failure
  PictureInfo info;  ///< set by reading; all sizes are 0 if the frame failed before
  /// Set by reading if the file is read in parts. Then there are neither bytes of the file nor pixels.
  std::shared_ptr<RegionSource> region;
  std::function<std::shared_ptr<RegionSource>()> open_again{};  ///< opens `region` once more, from its first row
  std::int64_t stage_bytes = 0;  ///< that stages need in addition to the pixels (LaneStage::bytes)
  ByteCredit credit;  ///< bytes of the gate's budget for the pixels; decoding moves it into the deleter of the pixels
  Columns columns;
  std::optional<Failure> failure;
  std::int64_t failed_ns = 0;  ///< when it failed, by the clock of the pipeline; 0: it has not
  bool split = false;          ///< memory ran out, so its model calls or its batch were smaller than planned
  std::function<void()> when_committed{};  ///< called when the frame's line is in the journal; empty: nothing to do
  bool retried = false;  ///< processed a second time because memory ran out, so counters have counted it already
};

/// The path to open for an item. A relative path is below `root` if `root` is not empty.
inline std::string open_path(const std::string& root, const Item& item) {
  return item.path.starts_with('/') || root.empty() ? item.path : root + "/" + item.path;
}

/// The frames of one planned batch, at least one, all of one view.
/// A failed frame keeps its slot, and stages skip it.
class Batch {
 public:
  explicit Batch(std::vector<std::shared_ptr<Frame>> slots) : frames(std::move(slots)) {}

  const PlanPosition& position() const { return frames.front()->position; }
  int view() const { return frames.front()->item.view; }
  /// Whether all frames have failed.
  bool empty() const {
    return std::all_of(frames.begin(), frames.end(), [](const auto& frame) { return frame->failed(); });
  }

  std::vector<std::shared_ptr<Frame>> frames;
  Columns columns;
  bool through_lane = false;  ///< the lane ran all its stages on the batch in parts, so it skips the remaining ones
};

}  // namespace millrace
