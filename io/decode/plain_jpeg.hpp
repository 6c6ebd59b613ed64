#pragma once

#include <cstdint>
#include <span>

namespace millrace {

/// Whether a JPEG file is of the kind that JPEG engines decode, with the colours of decode_jpeg().
/// It is baseline, has 8 bits, grey or YCbCr, one scan with all components, and an end marker behind that scan.
/// It reads markers only, so it finds no damage inside the scan.
bool is_plain_jpeg(std::span<const std::uint8_t> jpeg);

}  // namespace millrace
