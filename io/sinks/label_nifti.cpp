#include "io/sinks/label_nifti.hpp"

#include <fcntl.h>
#include <zlib.h>

#include <array>
#include <cstring>
#include <memory>
#include <stdexcept>

namespace millrace {
namespace {

// Offsets of nifti1.h.
constexpr std::size_t header_bytes = 348, at_dim = 40, at_datatype = 70, at_bitpix = 72, at_vox_offset = 108,
                      at_slope = 112, at_intercept = 116, at_largest = 124, at_smallest = 128, at_magic = 344;

template <class T>
void put(std::string& header, std::size_t offset, T value) {
  std::memcpy(header.data() + offset, &value, sizeof(value));
}

struct Close {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

}  // namespace

void write_label_nifti(int descriptor, const std::string& header, const LabelRows& labels) {
  if (header.size() != header_bytes) throw std::invalid_argument("a NIfTI header has 348 bytes");
  std::string begin = header;
  std::array<std::int16_t, 8> sides{};
  std::memcpy(sides.data(), begin.data() + at_dim, sizeof(sides));
  sides[0] = 3;  // one volume of a series
  for (std::size_t i = 4; i < sides.size(); ++i) sides[i] = 1;
  std::memcpy(begin.data() + at_dim, sides.data(), sizeof(sides));
  put(begin, at_datatype, std::int16_t{2});  // DT_UINT8
  put(begin, at_bitpix, std::int16_t{8});
  put(begin, at_vox_offset, 352.0F);
  put(begin, at_slope, 1.0F);
  put(begin, at_intercept, 0.0F);
  put(begin, at_largest, 0.0F);
  put(begin, at_smallest, 0.0F);
  std::memcpy(begin.data() + at_magic, "n+1", 4);
  begin.append(4, '\0');  // no extension

  // gzclose closes its descriptor. Level 1: labels have large areas of one value.
  const int own = ::fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  std::unique_ptr<gzFile_s, Close> file(own < 0 ? nullptr : gzdopen(own, "wb1"));
  if (file == nullptr) throw std::runtime_error("zlib cannot begin a file");
  const auto write = [&](const void* from, std::size_t bytes) {
    if (gzfwrite(from, 1, bytes, file.get()) != bytes) throw std::runtime_error("zlib cannot write a file");
  };
  write(begin.data(), begin.size());
  labels.read([&](int /*first*/, std::span<const std::uint8_t> slab) { write(slab.data(), slab.size()); });
  if (gzclose(file.release()) != Z_OK) throw std::runtime_error("zlib cannot end a file");
}

}  // namespace millrace
