#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/extent.hpp"
#include "base/geo_tags.hpp"
#include "base/hole.hpp"
#include "base/orientation.hpp"
#include "base/tensor.hpp"

namespace millrace {

/// Micrometres that differ by at most this share count as equal.
inline constexpr double same_mpp = 0.01;

/// The facts of a file that is read in parts.
struct RegionInfo {
  Extent size;
  std::optional<Extent> file_size{};  ///< that of the file, if labels have it in place of `size`
  int channels = 3;
  DType type = DType::u8;  ///< of a value, as read() gives it: u8 or f32
  bool volume = false;     ///< rows are slices; false: a picture, whose rows are lines
  /// In mm, between columns, lines and slices of the labels; of a picture between columns and rows. 0: unknown.
  std::array<double, 3> spacing_mm{};
  Directions directions{};       ///< of a volume
  Affine affine{};               ///< of the file of a volume; all 0: unknown
  std::string nifti_header{};    ///< of a volume, 348 bytes: its outputs have the same place in space
  GeoTags geo{};                 ///< of a picture: its outputs have the same place on Earth
  std::int64_t other_bytes = 0;  ///< of a volume in several files: the size of all but the item's own
  std::string other_files{};     ///< of these files: a hash of their names, sizes and times
  std::int64_t row_bytes() const {
    return size.row_values() * channels * static_cast<std::int64_t>(element_bytes(type));
  }
};

/// A picture or volume that is read row by row, so that it may be larger than memory.
/// One thread at a time uses it.
class RegionSource {
 public:
  virtual ~RegionSource() = default;
  virtual const RegionInfo& info() const = 0;
  /// Memory that the source keeps between calls, in bytes.
  virtual std::int64_t memory_bytes() const = 0;
  /// Reads rows [first, first + count) into `to`: [row][line][column][channel] without gaps.
  /// `first` never decreases from call to call. Throws PictureError, which names the part of the file.
  virtual void read(int first, int count, void* to) = 0;
  /// The same, but a tile or strip that cannot be read does not throw: its pixels in `to` are zeros, and `holes` gets its
  /// rectangle within these rows. Holes do not overlap. A source is read in one of the two ways only.
  /// Files without such parts throw, because what follows is lost too.
  virtual void read_with_holes(int first, int count, void* to, std::vector<Hole>& /*holes*/) { read(first, count, to); }
  /// The source whose rows this one resamples; null: it resamples none.
  virtual RegionSource* resampled() { return nullptr; }
  /// What becomes of the values of a row before they are resampled, in place: [line][column][channel].
  using Change = std::function<void(std::span<float> values)>;
  /// Only if resampled() is not null, and before the first read().
  virtual void change_first(Change /*change*/) {}
};

}  // namespace millrace
