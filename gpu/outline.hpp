#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/runs.hpp"
#include "gpu/device_code.hpp"

namespace millrace {

/// One bilinear sample along one axis: fma(weight0, v[index0], weight1 * v[index1]), index0 <= index1.
struct BilinearTap {
  int index0, index1;
  float weight0, weight1;
};

/// Sample i of those that PyTorch's interpolate(mode="bilinear", align_corners=False) takes when `from` values become
/// `to`.
MILLRACE_DEVICE inline BilinearTap bilinear_tap(int from, int to, int i) {
  if (from == to) return {i, i, 1.0F, 0.0F};
  const float scale = static_cast<float>(from) / static_cast<float>(to);
  const float centre = std::fma(scale, static_cast<float>(i) + 0.5F, -0.5F);
  const float source = centre > 0.0F ? centre : 0.0F;
  const int down = static_cast<int>(source);
  const int index0 = down < from - 1 ? down : from - 1, index1 = index0 + 1 < from - 1 ? index0 + 1 : from - 1;
  const float rest = source - static_cast<float>(index0), weight1 = rest < 0.0F ? 0.0F : rest > 1.0F ? 1.0F : rest;
  return {index0, index1, 1.0F - weight1, weight1};
}

/// All of them.
std::vector<BilinearTap> bilinear_taps(int from, int to);

/// The sizes a mask passes through on its way from a SAM decoder to the picture.
struct MaskGeometry {
  int logits_width = 256, logits_height = 256;  ///< the decoder's output
  int input_width = 1024, input_height = 1024;  ///< the encoder's input
  int crop_width = 0, crop_height = 0;          ///< the part of the input that the picture fills, from the top left
  int picture_width = 0, picture_height = 0;

  friend bool operator==(const MaskGeometry&, const MaskGeometry&) = default;
};

/// Throws std::invalid_argument on sizes below 1, a crop larger than the input, or a picture over 2^32 - 1 pixels.
void check_geometry(const MaskGeometry& geometry);

/// Exact masks at the cost of their outline.
///
/// The mask is what the original SAM defines: logits resized to the input size, cropped, resized to the picture, both
/// bilinear with align_corners=False, no antialiasing, in float32, then > threshold. The bits are those of
/// torch.nn.functional.interpolate on x86-64 with AVX2 or AVX-512 (its separable path, which fuses multiply and add),
/// except that outputs with width + height <= 128 go another way in PyTorch and may differ in the last place.
///
/// Bilinear values lie between those they are made from. So where all logits below a block of pixels lie clearly on one
/// side of the threshold, the block is settled without computing a pixel; the rest is computed column by column and
/// becomes runs at once. No raster is made.
///
/// One tracer serves all masks of a picture (and of pictures with the same geometry); it holds scratch memory, so it is
/// used by one thread at a time.
class MaskOutliner {
 public:
  /// Throws as check_geometry().
  explicit MaskOutliner(const MaskGeometry& geometry);

  const MaskGeometry& geometry() const { return geometry_; }

  /// Column-major runs of the mask, zeros first, summing to picture_width * picture_height.
  /// `logits` is [logits_height, logits_width], row-major, host. Throws std::invalid_argument on another number of
  /// logits and NonFinite on NaN or infinity in them.
  std::vector<std::uint32_t> outline(std::span<const float> logits, float threshold = 0.0F);

 private:
  /// One axis through both resizings.
  struct Axis {
    std::vector<BilinearTap> middle;  ///< of the cropped input, from logits
    std::vector<BilinearTap> outer;   ///< of the picture, from the cropped input
    std::vector<int> low, high;       ///< per picture coordinate: first and last logit it depends on
    std::vector<int> same_tap_end;    ///< per picture coordinate: end of those with the same index0 and index1
  };
  /// Picture rows of one strip that are settled alike, or are to be computed.
  struct RowSpan {
    int begin, end;
    unsigned char side;
  };

  static Axis axis(int logits, int input, int crop, int picture);
  void classify(std::span<const float> logits, float threshold);
  void find_spans(int low_column, int high_column);
  void compute_strip(int begin, int end, float threshold, RunBuilder& runs);

  MaskGeometry geometry_;
  Axis x_, y_;
  std::vector<int> first_row_from_;  ///< per logit row l: first picture row that needs no logit row before l
  std::vector<int> row_end_until_;   ///< per logit row l: end of the picture rows that need no logit row after l
  float margin_ = 0;
  std::vector<float> columns_;        ///< logits transposed
  std::vector<unsigned char> sides_;  ///< per transposed logit: inside, outside or near the threshold
  std::vector<unsigned char> strip_sides_;
  std::vector<RowSpan> spans_;
  std::vector<float> across_, middle_, column_;
  std::vector<unsigned char> column_sides_;
};

}  // namespace millrace
