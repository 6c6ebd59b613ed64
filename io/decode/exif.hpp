#pragma once

#include <cstdint>
#include <span>

namespace millrace {

/// The orientation (1..8) of the first image in an EXIF block, which is a TIFF file in small: "II*\0" or "MM\0*",
/// offset, tags. Whatever is wrong with the block (cut off, offsets out of it, another type, a value outside 1..8)
/// gives 1.
int exif_orientation(std::span<const std::uint8_t> tiff);

/// The same of the APP1 segments of a JPEG file, read up to its first scan.
int jpeg_orientation(std::span<const std::uint8_t> jpeg);

}  // namespace millrace
