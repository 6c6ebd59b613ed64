#include "io/regions/open_region.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string_view>

#include <unistd.h>

#include "base/plugin.hpp"
#include "io/regions/region_plugin.hpp"

namespace millrace {
namespace {

/// A plug-in and the files that it reads.
struct Format {
  const char* plugin;
  PluginWords words;
};

const Format* format_of(const std::string& path, const RegionOptions& options) {
  static const Format tiff{"libmillrace_tiff.so",
                           {"reads parts of TIFF files", "install Debian's libtiff6 and libpugixml1v5"}};
  static const Format nifti{"libmillrace_nifti.so", {"reads NIfTI files", "install Debian's libnifti2"}};
  static const Format dicom{"libmillrace_dicom.so", {"reads DICOM files", "install Debian's libgdcm3.0"}};
  static const Format slide{"libmillrace_openslide.so", {"reads slides", "install Debian's libopenslide0"}};
  std::array<char, 348> begin{};
  std::size_t count = 0;
  try {
    // Never waits for a pipe, and refuses what is no regular file.
    const OpenFile file(path, {.max_bytes = std::numeric_limits<std::int64_t>::max()});
    const ssize_t got = ::pread(file.descriptor(), begin.data(), begin.size(), 0);
    count = got < 0 ? 0 : static_cast<std::size_t>(got);
  } catch (const PictureError&) {
    return nullptr;  // reading it says why
  }
  if (count < 4) return nullptr;
  if (is_slide_name(path)) return &slide;
  const bool of_level = options.level > 0 || options.mpp > 0;
  const std::string_view magic(begin.data(), 4);
  for (const std::string_view known : {std::string_view("II*\0", 4), std::string_view("MM\0*", 4),
                                       std::string_view("II+\0", 4), std::string_view("MM\0+", 4)}) {
    if (magic == known) return of_level ? &slide : &tiff;
  }
  if (of_level) return nullptr;
  if (count >= 132 && std::memcmp(begin.data() + 128, "DICM", 4) == 0) return &dicom;
  // The header of a NIfTI in one file ends with this word. That of a compressed one is not readable yet.
  if (count == begin.size() && std::memcmp(begin.data() + 344, "n+1", 4) == 0) return &nifti;
  const bool gzip = magic.starts_with("\x1f\x8b");
  return gzip && path.ends_with(".nii.gz") ? &nifti : nullptr;
}

}  // namespace

bool is_slide_name(const std::string& path) {
  static constexpr std::array<std::string_view, 7> extensions{".ndpi", ".mrxs", ".scn",    ".vms",
                                                              ".vmu",  ".bif",  ".svslide"};
  std::string extension = std::filesystem::path(path).extension();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::ranges::find(extensions, extension) != extensions.end();
}

bool is_read_in_parts(const std::string& path) { return format_of(path, {}) != nullptr; }

std::shared_ptr<RegionSource> open_region(const std::string& path, const FileExpectations& expected,
                                          const RegionOptions& options) {
  OpenFile file(path, expected);
  const Format* const format = format_of(path, options);
  if (format == nullptr) return nullptr;
  void* symbol = nullptr;
  try {
    symbol = open_plugin(format->plugin, region_open_symbol, format->words);
  } catch (const PluginError& error) {
    throw PictureError(Reason::codec_missing, error.what());
  }
  std::shared_ptr<RegionSource> source;
  reinterpret_cast<RegionOpen*>(symbol)(std::move(file), path, options, source);
  return source;
}

}  // namespace millrace
