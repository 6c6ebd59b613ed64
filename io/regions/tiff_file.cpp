#include "io/regions/tiff_file.hpp"

#include <array>
#include <cstdarg>
#include <cstdio>
#include <new>

namespace millrace {
namespace {

/// Keeps the last message of the library.
int keep_message(TIFF* /*tiff*/, void* to, const char* /*module*/, const char* format, va_list words) {
  std::array<char, 300> text{};
  std::vsnprintf(text.data(), text.size(), format, words);
  *static_cast<std::string*>(to) = text.data();
  return 1;
}

int ignore_message(TIFF* /*tiff*/, void* /*to*/, const char* /*module*/, const char* /*format*/, va_list /*words*/) {
  return 1;
}

}  // namespace

TiffFile::TiffFile(OpenFile file, std::int64_t memory_bytes) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> settings(TIFFOpenOptionsAlloc(),
                                                                                  TIFFOpenOptionsFree);
  if (settings == nullptr) throw std::bad_alloc();
  TIFFOpenOptionsSetErrorHandlerExtR(settings.get(), keep_message, &message_);
  TIFFOpenOptionsSetWarningHandlerExtR(settings.get(), ignore_message, nullptr);
  TIFFOpenOptionsSetMaxSingleMemAlloc(settings.get(), memory_bytes);
  // m: no mapping into memory, because a file that shrinks would end the program.
  tiff_.reset(TIFFFdOpenExt(file.descriptor(), "TIFF", "rm", settings.get()));
  if (tiff_ == nullptr) throw PictureError(Reason::corrupt_data, "the header of this TIFF cannot be read: " + message_);
  file.release();  // TIFFClose closes it
}

std::string_view TiffFile::description() const {
  const char* text = nullptr;
  return TIFFGetField(tiff(), TIFFTAG_IMAGEDESCRIPTION, &text) == 1 && text != nullptr ? text : std::string_view();
}

void TiffFile::go_to_number(int number) {
  if (TIFFSetDirectory(tiff(), static_cast<tdir_t>(number)) == 0)
    throw PictureError(Reason::corrupt_data,
                       "directory " + std::to_string(number) + " of this TIFF cannot be read: " + message_);
}

bool TiffFile::go_to(std::uint64_t place) {
  if (TIFFCurrentDirOffset(tiff()) == place) return false;
  if (TIFFSetSubDirectory(tiff(), place) == 0)
    throw PictureError(Reason::corrupt_data, "its directory cannot be read: " + message_);
  return true;
}

std::vector<std::uint64_t> TiffFile::places(std::size_t count) {
  go_to_number(0);
  // Directories of a small file may all name the same long lists of strips, and libtiff reads them for each.
  constexpr std::int64_t most_parts = 1'000'000'000;
  std::int64_t parts = 0;
  std::vector<std::uint64_t> places{TIFFCurrentDirOffset(tiff())};
  while (places.size() < count && TIFFLastDirectory(tiff()) == 0) {
    if (TIFFReadDirectory(tiff()) == 0)
      throw PictureError(Reason::corrupt_data,
                         "directory " + std::to_string(places.size()) + " of this TIFF cannot be read: " + message_);
    places.push_back(TIFFCurrentDirOffset(tiff()));
    parts += TIFFIsTiled(tiff()) != 0 ? TIFFNumberOfTiles(tiff()) : TIFFNumberOfStrips(tiff());
    if (parts > most_parts)
      throw PictureError(Reason::too_large, "the first " + std::to_string(places.size()) +
                                                " directories of this TIFF have more than a billion tiles or strips");
  }
  return places;
}

}  // namespace millrace
