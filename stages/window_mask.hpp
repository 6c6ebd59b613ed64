#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/orientation.hpp"
#include "gpu/windows.hpp"

namespace millrace {

/// Which places of a picture or volume need the model: a mask of any size that is laid over it.
class WindowMask {
 public:
  /// No place needs the model yet.
  explicit WindowMask(const Extent& size);

  const Extent& size() const { return size_; }
  /// The place with this index among all places, columns fastest and rows slowest, needs the model.
  void mark(std::int64_t place);
  /// Whether a place of the mask that the window touches is marked. Padding has no places.
  bool needs_model(const WindowGrid& grid, std::int64_t window) const;
  /// By band: whether one of its windows needs the model.
  std::vector<bool> needed_bands(const WindowGrid& grid) const;

 private:
  bool any(std::int64_t begin, std::int64_t end) const;

  const Extent size_;
  std::vector<std::uint64_t> bits_;  // one for each place
};

/// A folder with a mask of each picture or volume.
class MaskFolder {
 public:
  explicit MaskFolder(std::string path) : path_(std::move(path)) {}

  /// Reads the mask of a picture or volume: its places with a value other than 0 are marked. Many threads may call it.
  /// For a/x.svs, it is the first file that exists. First come the names of label maps of a run: a/x.svs.png, .tif,
  /// .nii.gz. Then come a/x.png, .tif, .tiff, .nii.gz, .nii.
  /// Reading a row of it may need `memory_bytes`. A volume that is known to lie in another direction than `directions` is
  /// refused. Throws PictureError, whose message names the mask.
  std::shared_ptr<const WindowMask> read(const std::string& picture_path, bool volume, const Directions& directions,
                                         std::int64_t memory_bytes) const;

 private:
  const std::string path_;
  mutable std::mutex large_;  // held by the thread that reads a mask with much memory; the gate does not know of it
};

}  // namespace millrace
