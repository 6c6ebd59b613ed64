#pragma once

#include <nifti1.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/extent.hpp"

namespace millrace {

inline constexpr int most_nifti_voxels = 32767;  // along an axis

/// The header of a NIfTI with one volume, for RegionInfo::nifti_header: voxels of 1 mm, and no place in space. No side has
/// more than `most_nifti_voxels`.
inline nifti_1_header plain_nifti_header(const Extent& size) {
  nifti_1_header header{};
  header.sizeof_hdr = sizeof(header);
  const auto side = [](int voxels) { return static_cast<short>(voxels); };
  std::ranges::copy(std::array<short, 8>{3, side(size.columns), side(size.lines), side(size.rows), 1, 1, 1, 1},
                    header.dim);
  header.datatype = DT_FLOAT32;
  header.bitpix = 32;
  std::fill_n(header.pixdim, 4, 1.0F);
  header.vox_offset = 352;
  header.scl_slope = 1;
  header.xyzt_units = NIFTI_UNITS_MM;
  std::memcpy(header.magic, "n+1", 4);
  return header;
}

}  // namespace millrace
