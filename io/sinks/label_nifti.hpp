#pragma once

#include <string>

#include "io/results/label_rows.hpp"

namespace millrace {

/// Writes labels as a compressed NIfTI of 8-bit numbers. `header` is that of the volume, 348 bytes in the order of this
/// machine: the labels have its sides, spacing and place in space. The descriptor stays open.
/// Throws std::runtime_error if zlib fails, std::invalid_argument for another header.
void write_label_nifti(int descriptor, const std::string& header, const LabelRows& labels);

}  // namespace millrace
