#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/decode/decode.hpp"
#include "io/files/read_file.hpp"
#include "io/files/reason.hpp"
#include "io/input/item.hpp"
#include "pipeline/byte_gate.hpp"
#include "stages/field.hpp"

namespace millrace {

/// Where the plan puts a frame: batch and slot follow from the plan alone.
struct Place {
  std::int64_t batch = 0;    ///< unique over the run
  int slot = 0;              ///< in the batch, from 0
  int batch_size = 1;        ///< planned slots of the batch
  std::int64_t segment = 0;  ///< segment of the plan
  int segment_batch = 0;     ///< batch within the segment
};

/// One picture on its way. Plain data; stages add columns.
class Frame {
 public:
  Frame(Item planned, Place where) : item(std::move(planned)), place(where) {}

  std::int64_t batch_id() const { return place.batch; }
  int slot() const { return place.slot; }
  int batch_size() const { return place.batch_size; }
  bool failed() const { return failure.has_value(); }
  void set_credit(ByteCredit taken) { credit = std::move(taken); }

  /// Marks the frame; the first failure stays.
  void fail(std::string stage, Reason reason, std::string detail) {
    if (!failure) failure = Failure{std::move(stage), reason, std::move(detail)};
    file = {};  // its bytes of the gate's budget are given back
  }

  Item item;
  Place place;
  FileBytes file;     ///< from read until decode, or until it fails
  PictureInfo info;   ///< from read; sizes are 0 for a frame that failed before
  ByteCredit credit;  ///< bytes of the gate's budget; moves into the pixels' deleter when they are made
  Columns columns;
  std::optional<Failure> failure;
  bool split = false;  ///< a model call of it did not have the planned shape
  bool again = false;  ///< decoded and counted before
};

/// The path under which an item is opened.
inline std::string open_path(const std::string& root, const Item& item) {
  return item.path.starts_with('/') || root.empty() ? item.path : root + "/" + item.path;
}

/// The frames of one planned batch, all of one view. A failed frame keeps its slot and is passed over.
class Batch {
 public:
  explicit Batch(std::vector<std::shared_ptr<Frame>> slots) : frames(std::move(slots)) {}

  const Place& place() const { return frames.front()->place; }
  int view() const { return frames.front()->item.view; }
  /// Whether all its frames failed.
  bool empty() const {
    return std::all_of(frames.begin(), frames.end(), [](const auto& frame) { return frame->failed(); });
  }

  std::vector<std::shared_ptr<Frame>> frames;
  Columns columns;
  bool through_lane = false;  ///< done in parts: the stages of the lane that are left have nothing to do
};

}  // namespace millrace
