#pragma once

#include <memory>
#include <string>

#include "io/files/read_file.hpp"
#include "io/regions/region_source.hpp"

namespace millrace {

/// Whether the name has the extension of a slide that only OpenSlide reads, such as .ndpi, in upper or lower case.
bool is_slide_name(const std::string& path);

/// Whether files of this kind are read in parts: TIFF, BigTIFF and DICOM by their first bytes, NIfTI (.nii, .nii.gz) by
/// header and name, slides by name. False for a file that cannot be read.
bool is_read_in_parts(const std::string& path);

/// What is read of a file that is read in parts, and how much memory that may take.
struct RegionOptions {
  std::int64_t memory_bytes = 64LL << 20;  ///< that the source may keep
  int volume = 0;                          ///< of a file with several volumes, from 0
  int volumes = 1;                         ///< so many of them, from `volume` on, are the channels
  int level = 0;                           ///< of the pyramid of a slide, from 0, the largest
  double mpp = 0;  ///< above 0: the coarsest level whose pixels have at most so many micrometres, within same_mpp
  bool labels_back = false;  ///< of a slide with `mpp`: labels have the pixels of level 0 (RegionInfo::file_size)
  int channels = 0;          ///< of pictures: the file has exactly so many, and its values are kept; 0: RGB of 8 bits
};

/// Opens such a file. Null: its kind of picture is only read whole, as a palette is.
/// With a level or micrometres, OpenSlide reads TIFFs too, and what cannot be a slide gives null.
/// Throws PictureError, also codec_missing if the plug-in for the format is not installed.
std::shared_ptr<RegionSource> open_region(const std::string& path, const FileExpectations& expected,
                                          const RegionOptions& options);

}  // namespace millrace
