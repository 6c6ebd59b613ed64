#pragma once

#include <cstdint>
#include <span>

namespace millrace {

/// The orientation (1..8) of the first image in an EXIF block.
/// The block is a small TIFF file: "II*\0" or "MM\0*", offset, tags.
/// Any fault of the block gives 1: cut off, offsets outside of it, another type, a value outside 1..8.
int exif_orientation(std::span<const std::uint8_t> tiff);

/// The same from the APP1 segments of a JPEG file, up to its first scan.
int jpeg_orientation(std::span<const std::uint8_t> jpeg);

}  // namespace millrace
