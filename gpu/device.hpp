#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/tensor.hpp"
#include "gpu/letterbox.hpp"
#include "gpu/outline.hpp"
#include "gpu/yolo_head.hpp"

namespace millrace {

class Stream;

/// A call of the driver that failed, or a kernel that did: the device is of no more use to this process. The message
/// names the call, the error and what it says.
struct DeviceError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What is wanted of a detector's output; the same for all pictures of a view.
struct BoxSearch {
  HeadSpec head;
  float least_score = 0.25F;
  double iou_threshold = 0.45;
  double least_area = 0;  ///< in picture pixels
  bool class_aware = true;
  int most_boxes = 100;              ///< of a picture, best first
  std::vector<std::uint8_t> wanted;  ///< by class, 0: passed over; empty: all are wanted
};

/// What a detector found in one picture: best first, in picture pixels, clipped.
struct FoundBoxes {
  std::vector<Box> boxes;
  std::vector<float> scores;
  std::vector<int> classes;
  bool more = false;  ///< there were more than most_boxes
  std::string fault;  ///< why there are none: the output is not finite
};

/// Row `row` of a detector's output, where its picture lies in the input, and where what was found goes.
struct BoxTarget {
  int row = 0;
  LetterboxGeometry geometry;
  std::shared_ptr<FoundBoxes> found;
};

/// A mask at full size: column-major COCO runs, zeros first.
struct TracedMask {
  std::vector<std::uint32_t> counts;
  float predicted_iou = 0;
  std::string fault;  ///< why there is none: logits or predicted IoU are not finite
};

/// Row `row` of a decoder's output, where its picture lies, and where the mask goes.
struct MaskTarget {
  int row = 0;
  MaskGeometry geometry;
  std::shared_ptr<TracedMask> mask;
};

/// Output of one call of a decoder: logits f32 [N, h, w] and predicted IoU f32 [N].
struct MaskCall {
  Tensor logits, predicted_iou;
  std::vector<MaskTarget> targets;
};

/// Boxes as a decoder takes them, on the device.
struct Prompts {
  Tensor boxes;        ///< f32 [N, 4]
  Tensor image_index;  ///< i64 [N]
};

/// What a device was asked for besides computing. On the host there is nothing to bring anywhere.
struct DeviceCounts {
  std::int64_t uploads = 0;    ///< rasters
  std::int64_t downloads = 0;  ///< of masks, one a trace()
  std::int64_t waits = 0;
  std::int64_t overflows = 0;  ///< waits whose masks had more outline than there was room for, and so took one more
};

/// Where a lane computes: the numeric core behind the lane stages, as a queue. What is asked for is done in order, by
/// the time wait() returns at the latest; until then nothing that is written may be read. Tensors may be let go at
/// once.
///
/// A device belongs to one lane and is used by its thread alone.
class Device {
 public:
  Device() = default;
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  virtual ~Device() = default;

  /// Uninitialised memory of the device. It may be used again as soon as the last tensor on it is gone, since what was
  /// asked for before comes before what is asked for then.
  virtual Tensor empty(std::vector<std::int64_t> shape, DType dtype = DType::f32) = 0;
  virtual void zero(const Tensor& tensor) = 0;
  /// Between tensors of this device, of the same number of bytes.
  virtual void copy(const Tensor& from, const Tensor& to) = 0;

  /// Brings a raster to the device; `keep` keeps the host's until that is done. It stays there until the next wait().
  virtual Image8 upload(const Image8& raster, std::shared_ptr<const void> keep) = 0;
  /// Fills `input` [3, H, W] of a model from an uploaded raster; see letterbox_cpu.
  virtual void letterbox(const Image8& raster, const LetterboxGeometry& geometry, const InputSpec& spec,
                         const Tensor& input) = 0;

  /// Boxes of a detector's output. Throws std::invalid_argument when type or shape are not those of the head.
  virtual void find_boxes(const Tensor& output, const BoxSearch& search, std::span<const BoxTarget> targets) = 0;

  /// `boxes` in pixels of the segmenter's input, box n of picture image_index[n].
  virtual Prompts prompts(std::span<const Box> boxes, std::span<const int> image_index) = 0;

  /// Masks of a decoder's outputs, all of which come down in one copy.
  virtual void trace(std::span<const MaskCall> calls, float threshold) = 0;

  /// Blocks until everything that was asked for is done.
  virtual void wait() = 0;
  /// Waits and forgets all that was asked for since the last wait(): nothing of it is written. For what failed halfway.
  virtual void abandon() { wait(); }

  [[nodiscard]] virtual DeviceCounts counts() const { return {}; }

  /// What this device computes on, for engines; null: the host.
  virtual Stream* stream() { return nullptr; }
};

}  // namespace millrace
