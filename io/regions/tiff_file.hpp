#pragma once

#include <tiffio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/read_file.hpp"

namespace millrace {

/// A TIFF that is open with libtiff. One of its directories (pages) is the current one: at first, the first.
/// One thread at a time uses it.
class TiffFile {
 public:
  /// No allocation of libtiff is larger than `memory_bytes`. Throws PictureError.
  TiffFile(OpenFile file, std::int64_t memory_bytes);
  TiffFile(const TiffFile&) = delete;
  TiffFile& operator=(const TiffFile&) = delete;
  ~TiffFile() = default;

  TIFF* tiff() const { return tiff_.get(); }
  /// The last message of libtiff.
  const std::string& message() const { return message_; }
  void clear_message() { message_.clear(); }

  /// A tag of the current directory, its default, or `otherwise`.
  template <class T>
  T tag(std::uint32_t name, T otherwise) const {
    T value = otherwise;
    return TIFFGetFieldDefaulted(tiff(), name, &value) == 1 ? value : otherwise;
  }
  /// Of the current directory, until another one is current; empty if it has none.
  std::string_view description() const;

  /// Makes the directory `number` the current one, from 0. Throws PictureError.
  void go_to_number(int number);
  /// The same for the directory at this place in the file. False if it is the current one already.
  bool go_to(std::uint64_t place);
  /// The places of the first `count` directories; fewer if the file has fewer. The last one of them becomes the current
  /// one. Throws PictureError, also if the directories form a loop.
  std::vector<std::uint64_t> places(std::size_t count);

 private:
  struct Close {
    void operator()(TIFF* tiff) const { TIFFClose(tiff); }
  };

  std::string message_;  // before the file, which may still write to it when it closes
  std::unique_ptr<TIFF, Close> tiff_;
};

}  // namespace millrace
