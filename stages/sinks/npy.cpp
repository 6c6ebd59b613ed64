#include <algorithm>
#include <cstring>
#include <string>

#include "stages/class_map.hpp"
#include "stages/sinks/sink_entry.hpp"

namespace millrace {

/// A NumPy file with the values of each pixel: float32 [height, width, channels]. Of a volume: [z, y, x, channels].
class NpySink final : public PictureSink {
 public:
  static SinkEntry entry() {
    return {.name = "npy",
            .help = "values of each pixel, for NumPy; needs semantic.values",
            .outputs = {"values"},
            .suffix = ".npy",
            .reads = {&class_values},
            .make = [](const StageContext&) -> std::unique_ptr<PictureSink> { return std::make_unique<NpySink>(); }};
  }

  // Version 1.0 of the format, numpy/lib/format.py: magic, length of the header, header, values.
  std::vector<std::uint8_t> encode(const Frame& frame, std::span<const Object> /*objects*/) const override {
    const ClassValues& of = frame.columns.get(class_values);
    std::string sides = std::to_string(of.size.rows) + ", ";
    if (of.volume) sides += std::to_string(of.size.lines) + ", ";
    std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + sides +
                         std::to_string(of.size.columns) + ", " + std::to_string(of.channels) + "), }";
    constexpr std::size_t before = 10, alignment = 64;
    header.append(alignment - (before + header.size() + 1) % alignment, ' ');
    header += '\n';
    const std::size_t bytes =
        sizeof(float) * static_cast<std::size_t>(of.size.values()) * static_cast<std::size_t>(of.channels);
    std::vector<std::uint8_t> file(before + header.size() + bytes);
    std::ranges::copy(std::string_view("\x93NUMPY\x01", 7), file.begin());
    file[8] = static_cast<std::uint8_t>(header.size() % 256);
    file[9] = static_cast<std::uint8_t>(header.size() / 256);
    std::ranges::copy(header, file.begin() + before);
    std::memcpy(file.data() + before + header.size(), of.values.get(), bytes);
    return file;
  }
};

template SinkEntry sink_entry<NpySink>();

}  // namespace millrace
