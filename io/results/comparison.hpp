#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/files/files.hpp"
#include "io/results/json_line.hpp"
#include "io/results/object.hpp"

namespace millrace {

/// Shares from 0 to 1, such as the IoU of masks, in steps of 1/10,000. Memory does not depend on their number.
class Shares {
 public:
  void add(double share);
  std::int64_t count() const { return count_; }
  double mean() const;  ///< 0 without shares
  double lowest() const { return lowest_; }
  /// The share that `q` of all shares do not exceed, for q in (0, 1]; 0 without shares.
  double quantile(double q) const;

 private:
  static constexpr std::size_t steps = 10'000;
  std::array<std::int64_t, steps + 1> counts_{};
  std::int64_t count_ = 0;
  double sum_ = 0, lowest_ = 1;
};

/// An object that two outputs have in common.
struct ObjectPair {
  std::size_t first = 0, second = 0;  ///< indices
  double iou = 0;                     ///< of the masks; of the boxes if one of them has no mask
  float box_shift = 0;                ///< the largest distance between an edge of one box and of the other, in pixels
};

/// Pairs the objects of a picture of this size: the highest IoU first, each object once, never below `lowest` (0 to 1).
/// Classes do not matter. With masks, only objects whose boxes overlap are paired.
std::vector<ObjectPair> pair_objects(std::span<const Object> first, std::span<const Object> second, double lowest);

/// A picture whose results differ.
struct PictureDifference {
  FrameRecord first, second;
  double lowest_iou = 1;           ///< of its pairs; 0 if only one of the outputs has an object
  std::int64_t only_first = 0;     ///< objects
  std::int64_t only_second = 0;    ///< objects
  std::int64_t other_classes = 0;  ///< pairs whose classes differ
};

/// How the results of two outputs differ. Pictures count by their paths.
struct ResultsComparison {
  std::int64_t pictures = 0;  ///< with the same path in both outputs
  std::int64_t pictures_only_first = 0, pictures_only_second = 0;
  std::int64_t failed_only_first = 0, failed_only_second = 0, failed_both = 0;
  std::int64_t other_sizes = 0;  ///< pictures that differ in width or height; their objects are not compared
  std::int64_t identical = 0;    ///< pictures that are ok in both outputs and whose objects have the same bytes
  std::int64_t objects_first = 0, objects_second = 0;  ///< of pictures that are ok in both outputs
  std::int64_t pairs = 0;
  std::int64_t other_classes = 0;        ///< pairs whose classes differ
  Shares ious;                           ///< of the pairs
  float largest_box_shift = 0;           ///< of the pairs, in pixels
  std::vector<PictureDifference> worst;  ///< the lowest IoU first, then the most objects without a pair
};

/// Compares the finished segments of two output folders. It takes no lock.
/// `worst` is how many of the pictures that differ most it keeps.
/// Memory holds a segment of each output, and the lines whose picture has not come up in the other output.
/// Throws as SegmentReader, and std::runtime_error for a line that cannot be read.
ResultsComparison compare_results(const std::string& first_folder, const std::string& second_folder, std::size_t worst,
                                  const FileSystem& files = real_files);

}  // namespace millrace
