#pragma once

#include <cstdint>

#include "gpu/ops/cut_windows.hpp"
#include "models/package.hpp"
#include "stages/batch.hpp"

namespace millrace {

/// Sets `source.scaling`, by which values become the input of the model: constants of the package, or statistics of the
/// frame's whole picture or volume. Millrace computes them in float64, and finds percentiles exactly.
/// A file that is read in parts is read once more for a mean, twice more for percentiles; `frame.region` is then new.
/// If the package scales before volumes are resampled, `frame.region` does so, and windows get its values as they are.
/// A model with one channel takes the first one of the picture. Needs `source.reversed`.
/// Throws PictureError: non_finite for a value that is not finite in a channel with statistics, and all faults of
/// reading.
void set_scaling(const Package& package, Frame& frame, WindowSource& source);

/// Bytes that set_scaling() needs for an item with so many values in a row, of all its channels.
std::int64_t scaling_bytes(const Package& package, std::int64_t row_values);

}  // namespace millrace
