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

/// PyTorch's interpolate(mode="bilinear", align_corners=False) along one axis, from `from` to `to` values.
struct BilinearAxis {
  int from, to;
  float scale;  ///< from / to

  MILLRACE_DEVICE BilinearAxis(int from, int to)
      : from(from), to(to), scale(static_cast<float>(from) / static_cast<float>(to)) {}

  /// Returns sample i.
  MILLRACE_DEVICE BilinearTap tap(int i) const {
    if (from == to) return {i, i, 1.0F, 0.0F};
    const float centre = std::fma(scale, static_cast<float>(i) + 0.5F, -0.5F);
    const float source = centre > 0.0F ? centre : 0.0F;
    const int down = static_cast<int>(source);
    const int index0 = down < from - 1 ? down : from - 1, index1 = index0 + 1 < from - 1 ? index0 + 1 : from - 1;
    const float rest = source - static_cast<float>(index0), weight1 = rest < 0.0F ? 0.0F : rest > 1.0F ? 1.0F : rest;
    return {index0, index1, 1.0F - weight1, weight1};
  }
};

/// Returns all samples.
std::vector<BilinearTap> bilinear_taps(int from, int to);

/// The sizes of a mask between the output of a SAM decoder and the picture.
struct MaskGeometry {
  int logits_width = 256, logits_height = 256;  ///< the decoder's output
  int input_width = 1024, input_height = 1024;  ///< the encoder's input
  int crop_width = 0, crop_height = 0;          ///< the part of the input that the picture fills, from the top left
  int picture_width = 0, picture_height = 0;

  friend bool operator==(const MaskGeometry&, const MaskGeometry&) = default;
};

/// Throws std::invalid_argument for sizes below 1, a crop larger than the input, or a picture over 2^32 - 1 pixels.
void check_geometry(const MaskGeometry& geometry);

/// Computes exact masks. The time depends mostly on the length of the outline, not on the area of the picture.
///
/// The mask is that of the original SAM: logits are resized to the input size, cropped, and resized to the picture.
/// A pixel is in the mask if its value is > threshold.
/// Both resizings are bilinear in float32, with align_corners=False and without antialiasing.
/// The bits equal those of torch.nn.functional.interpolate on x86-64 with AVX2 or AVX-512 (its separable path, which
/// fuses multiply and add). PyTorch has another path for outputs with width + height <= 128, whose last bit may differ.
///
/// Bilinear values are between their inputs. If all logits under a block of pixels are clearly on one side of the
/// threshold, no pixel of the block is computed. The rest is computed column by column, and becomes runs directly.
/// No raster is made.
///
/// One object serves all masks of pictures with the same geometry. It holds scratch memory: one thread at a time.
class MaskOutliner {
 public:
  /// Throws as check_geometry().
  explicit MaskOutliner(const MaskGeometry& geometry);

  const MaskGeometry& geometry() const { return geometry_; }

  /// Returns the runs of the mask down the columns, zeros first. Their sum is picture_width * picture_height.
  /// `logits` is [logits_height, logits_width], row-major, on the host.
  /// Throws std::invalid_argument for another number of logits, and NonFinite for NaN or infinity.
  std::vector<std::uint32_t> outline(std::span<const float> logits, float threshold = 0.0F);

 private:
  /// The taps of one axis for both resizings.
  struct Axis {
    std::vector<BilinearTap> middle;  ///< one for each pixel of the cropped input, from logits
    std::vector<BilinearTap> outer;   ///< one for each pixel of the picture, from the cropped input
    std::vector<int> low, high;       ///< per picture coordinate: first and last logit it depends on
    std::vector<int> same_tap_end;    ///< per picture coordinate: end of the coordinates with the same indices
  };
  /// Rows of one strip of the picture: all inside, all outside, or to be computed.
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
