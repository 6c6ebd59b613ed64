#pragma once

#include <memory>
#include <string>

#include "io/files/read_file.hpp"
#include "io/regions/region_source.hpp"

namespace millrace {

/// Whether files of this kind are read in parts: TIFF, BigTIFF and DICOM by their first bytes, NIfTI (.nii, .nii.gz) by
/// header and name. False for a file that cannot be read.
bool is_read_in_parts(const std::string& path);

/// What is read of a file that is read in parts, and how much memory that may take.
struct RegionOptions {
  std::int64_t memory_bytes = 64LL << 20;  ///< that the source may keep
  int volume = 0;                          ///< of a file with several volumes, from 0
};

/// Opens such a file. Null: its kind of picture is only read whole, as a palette is.
/// Throws PictureError, also codec_missing if the plug-in for the format is not installed.
std::shared_ptr<RegionSource> open_region(const std::string& path, const FileExpectations& expected,
                                          const RegionOptions& options);

}  // namespace millrace
