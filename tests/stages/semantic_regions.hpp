#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/io/files/temporary_folder.hpp"
#include "tests/stages/semantic_world.hpp"

/// Pictures that are read in parts.
namespace millrace {

/// A picture in memory that is read like a large file.
class FakeRegion final : public RegionSource {
 public:
  explicit FakeRegion(const PixelBuffer& raster, int broken_row = -1) : raster_(raster), broken_(broken_row) {
    info_.size = {raster.height, 1, raster.width};
  }
  const RegionInfo& info() const override { return info_; }
  std::int64_t memory_bytes() const override { return 0; }
  void read(int first, int count, void* to) override {
    CHECK(first >= end_);  // forward only, and no row twice
    end_ = first + count;
    if (first <= broken_ && broken_ < end_)
      throw PictureError(Reason::corrupt_data, "tile " + std::to_string(broken_) + " is broken");
    std::memcpy(to, raster_.data.get() + std::ptrdiff_t{3} * first * raster_.width,
                static_cast<std::size_t>(3 * count * raster_.width));
    rows += count;
  }
  void read_with_holes(int first, int count, void* to, std::vector<Hole>& found) override {
    read(first, count, to);
    for (const Hole& hole : holes) {
      const Hole part{std::max(hole.first_row, first), std::min(hole.end_row, first + count), hole.first_column,
                      hole.end_column};
      if (part.first_row < part.end_row) found.push_back(part);
    }
  }
  int rows = 0;
  void set_other_files(const std::string& state) { info_.other_files = state; }
  void set_file_size(const Extent& size) { info_.file_size = size; }
  std::vector<Hole> holes;

 private:
  const PixelBuffer raster_;
  const int broken_;
  RegionInfo info_;
  int end_ = 0;
};

/// The frame without pixels: its file is read in parts.
inline std::shared_ptr<FakeRegion> in_parts(Frame& frame, int broken_row = -1) {
  auto region = std::make_shared<FakeRegion>(frame.columns.get(pixels), broken_row);
  frame.columns.drop(pixels);
  frame.region = region;
  return region;
}

/// An output folder for the files of unfinished pictures.
struct FolderWorld : World {
  explicit FolderWorld(Before before = {}) : World(semantic_package(3), std::move(before)) {
    output_folder = folder_.path();
  }
  std::string unfinished(int id) const { return folder_.path() + "/unfinished/" + std::to_string(id); }
  TemporaryFolder folder_;
};

}  // namespace millrace
