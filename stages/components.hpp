#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/extent.hpp"

namespace millrace {

/// Neighbours of one label in a picture or volume.
struct Component {
  std::uint8_t label = 0;
  std::int64_t values = 0;  ///< pixels or voxels
  Extent first, last;       ///< the smallest box around it: its first and last row, line and column
};

/// Finds the components of labels that come row by row. Two pixels of a label are neighbours if they share an edge or a
/// corner: a pixel has 8 neighbours, a voxel 26.
/// Memory holds the runs of two rows, and the components. It does not depend on the number of rows.
/// Both functions throw PictureError too_large for more than a million components.
class ComponentFinder {
 public:
  /// Components of labels below `labels` with at least `least` pixels. Labels in `background` have no components.
  ComponentFinder(const Extent& size, int labels, std::vector<bool> background, std::int64_t least);

  /// The next whole rows.
  void add(std::span<const std::uint8_t> rows);
  /// All components, in the order of their first pixel. Call it once, after the last row.
  std::vector<Component> finish();

 private:
  struct Run {
    int first = 0, last = 0;  ///< columns
    std::uint8_t label = 0;
    std::uint32_t component = 0;  ///< index into open_
  };
  /// A component that may still grow. Joined components are a tree, whose root counts for all.
  struct Open {
    Component found;
    std::int64_t begin = 0;  ///< index of its first pixel
    std::uint32_t parent = 0;
    std::uint32_t moved = 0;
  };
  using Row = std::vector<std::vector<Run>>;  // runs by line

  void add_row(const std::uint8_t* labels);
  void add_run(Run run, int line);
  void join(Run& run, const std::vector<Run>& line);
  std::uint32_t root_of(std::uint32_t component);
  void close();

  const Extent size_;
  const std::int64_t least_;
  std::vector<bool> ignored_;  // by label
  int row_ = 0;
  Row before_, here_;
  std::vector<Open> open_, closed_;
};

}  // namespace millrace
