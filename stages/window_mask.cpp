#include "stages/window_mask.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "io/decode/decode.hpp"
#include "io/files/source_names.hpp"
#include "io/input/scan.hpp"
#include "io/regions/open_region.hpp"
#include "io/sinks/side_files.hpp"

namespace millrace {
namespace {

constexpr std::int64_t max_places = std::int64_t{1} << 28;  // 32 MiB of bits
// Of masks that are decoded whole. Their pixels need 192 MiB for a while.
constexpr std::int64_t max_decoded_pixels = std::int64_t{1} << 26;

std::string existing_mask(const std::string& folder, const std::string& picture_path) {
  const std::string extension = extension_of(picture_path);
  const std::string bare =
      extension.empty() ? picture_path : picture_path.substr(0, picture_path.size() - extension.size() - 1);
  std::vector<std::pair<const std::string*, const char*>> names;
  for (const char* suffix : {".png", ".tif", ".nii.gz"}) names.emplace_back(&picture_path, suffix);
  for (const char* suffix : {".png", ".tif", ".tiff", ".nii.gz", ".nii"}) names.emplace_back(&bare, suffix);
  for (const auto& [name, suffix] : names) {
    std::filesystem::path file = folder;
    for (const std::string& part : side_path(*name, suffix)) file /= part;
    std::error_code unknown;
    if (std::filesystem::exists(file, unknown)) return file;
  }
  throw PictureError(Reason::vanished, "tiles.mask has no mask of this picture, such as " +
                                           display_name(bare + ".png") + "; write one, or leave the picture out");
}

void check_size(const Extent& size) {
  if (size.values() > max_places)
    throw PictureError(Reason::too_large, "it has " + std::to_string(size.values()) + " places, and at most " +
                                              std::to_string(max_places) + " are read; make it smaller");
}

template <class T>
void mark_all(WindowMask& mask, std::int64_t first, std::int64_t places, int channels, const T* values) {
  for (std::int64_t place = 0; place < places; ++place, values += channels) {
    if (std::any_of(values, values + channels, [](T value) { return value != T{0}; })) mask.mark(first + place);
  }
}

std::shared_ptr<const WindowMask> read_rows(RegionSource& source) {
  const RegionInfo& info = source.info();
  check_size(info.size);
  const auto mask = std::make_shared<WindowMask>(info.size);
  const auto at_once = static_cast<int>(std::clamp<std::int64_t>((1 << 20) / info.row_bytes(), 1, info.size.rows));
  std::vector<std::uint8_t> rows(static_cast<std::size_t>(at_once * info.row_bytes()));
  for (int first = 0; first < info.size.rows; first += at_once) {
    const int count = std::min(at_once, info.size.rows - first);
    source.read(first, count, rows.data());
    const std::int64_t place = first * info.size.row_values(), places = count * info.size.row_values();
    if (info.type == DType::u8) {
      mark_all(*mask, place, places, info.channels, rows.data());
    } else {
      mark_all(*mask, place, places, info.channels, reinterpret_cast<const float*>(rows.data()));
    }
  }
  return mask;
}

/// Null: a kind of picture that is only read whole, such as a PNG, or a TIFF with a palette.
std::shared_ptr<RegionSource> open_rows(const std::string& file, bool volume, std::int64_t memory_bytes) {
  if (!is_read_in_parts(file)) return nullptr;
  const FileExpectations any_size{.max_bytes = std::numeric_limits<std::int64_t>::max()};
  if (volume) return open_region(file, any_size, {.memory_bytes = memory_bytes});
  // With the channels of the file, its values are kept. Rounded to 8 bits, small numbers would become 0.
  for (const int channels : {1, 3, 4, 2}) {
    try {
      return open_region(file, any_size, {.memory_bytes = memory_bytes, .channels = channels});
    } catch (const PictureError& error) {
      if (error.reason() != Reason::unsupported_format) throw;
    }
  }
  return nullptr;
}

/// Holds other threads back if so much memory is needed.
std::unique_lock<std::mutex> alone_if_large(std::int64_t bytes, std::mutex& large) {
  return bytes > (std::int64_t{16} << 20) ? std::unique_lock(large) : std::unique_lock<std::mutex>();
}

std::shared_ptr<const WindowMask> decode_mask(const std::string& file, std::mutex& large) {
  const FileBytes bytes = read_file(file, {.max_bytes = 3 * max_decoded_pixels});
  const DecodeLimits limits{.max_pixels = max_decoded_pixels, .slab_bytes = 3 * max_decoded_pixels};
  const PictureInfo info = probe(bytes.span(), limits);
  // The depth in the header of a PNG. Rounded to 8 bits, small numbers would become 0.
  if (info.format == PictureFormat::png && bytes.size > 24 && bytes.data[24] == 16)
    throw PictureError(Reason::unsupported_format, "it is a PNG of 16 bits; write it with 8 bits, or as TIFF");
  const auto lock = alone_if_large(info.pixel_bytes, large);
  const Decoded decoded = decode(bytes.span(), info, limits, pixels_on_heap);
  const auto mask = std::make_shared<WindowMask>(Extent{decoded.pixels.height, 1, decoded.pixels.width});
  mark_all(*mask, 0, mask->size().values(), 3, static_cast<const std::uint8_t*>(decoded.pixels.data.get()));
  return mask;
}

bool is_known(const Directions& directions) { return directions != Directions{}; }

std::shared_ptr<const WindowMask> read_mask(const std::string& file, bool volume, const Directions& directions,
                                            std::int64_t memory_bytes, std::mutex& large) {
  const auto source = open_rows(file, volume, memory_bytes);
  if (const bool is_volume = source != nullptr && source->info().volume; is_volume != volume)
    throw PictureError(Reason::unsupported_format, volume ? "it is a picture, but its item is a volume"
                                                          : "it is a volume, but its item is a picture");
  if (source == nullptr) return decode_mask(file, large);
  const Directions& own = source->info().directions;
  if (is_known(own) && is_known(directions) && axis_map(own, "RAS") != axis_map(directions, "RAS"))
    throw PictureError(Reason::unsupported_format, "its axes lie in other directions than those of its item");
  const auto lock = alone_if_large(source->memory_bytes(), large);
  return read_rows(*source);
}

}  // namespace

WindowMask::WindowMask(const Extent& size) : size_(size), bits_(static_cast<std::size_t>((size.values() + 63) / 64)) {}

void WindowMask::mark(std::int64_t place) {
  bits_[static_cast<std::size_t>(place / 64)] |= std::uint64_t{1} << (place % 64);
}

bool WindowMask::any(std::int64_t begin, std::int64_t end) const {
  while (begin < end) {
    const std::int64_t next = std::min(end, (begin / 64 + 1) * 64);
    const std::uint64_t from = ~std::uint64_t{0} << (begin % 64);
    const std::uint64_t to = next % 64 == 0 ? ~std::uint64_t{0} : (std::uint64_t{1} << (next % 64)) - 1;
    if ((bits_[static_cast<std::size_t>(begin / 64)] & from & to) != 0) return true;
    begin = next;
  }
  return false;
}

bool WindowMask::needs_model(const WindowGrid& grid, std::int64_t window) const {
  const Extent start = grid.start(window);
  Extent first, end;
  for (int axis = 0; axis < 3; ++axis) {
    // The part of the window in the item, then the places of the mask that it touches.
    const std::int64_t item = grid.item.along(axis), mask = size_.along(axis);
    const std::int64_t begin = start.along(axis) - grid.before.along(axis);
    const std::int64_t from = std::max<std::int64_t>(begin, 0), to = std::min(begin + grid.roi.along(axis), item);
    if (from >= to) return false;
    first.along(axis) = static_cast<int>(from * mask / item);
    end.along(axis) = static_cast<int>((to * mask + item - 1) / item);
  }
  for (int row = first.rows; row < end.rows; ++row) {
    for (int line = first.lines; line < end.lines; ++line) {
      const std::int64_t at = (std::int64_t{row} * size_.lines + line) * size_.columns;
      if (any(at + first.columns, at + end.columns)) return true;
    }
  }
  return false;
}

std::vector<bool> WindowMask::needed_bands(const WindowGrid& grid) const {
  std::vector<bool> needed(static_cast<std::size_t>(grid.bands()));
  for (std::int64_t window = 0; window < grid.windows(); ++window) {
    const auto band = static_cast<std::size_t>(grid.band_of(window));
    if (needed[band]) continue;
    needed[band] = needs_model(grid, window);
  }
  return needed;
}

std::shared_ptr<const WindowMask> MaskFolder::read(const std::string& picture_path, bool volume,
                                                   const Directions& directions, std::int64_t memory_bytes) const {
  const std::string file = existing_mask(path_, picture_path);
  try {
    return read_mask(file, volume, directions, memory_bytes, large_);
  } catch (const PictureError& error) {
    throw PictureError(error.reason(), "the mask " + display_name(file) + ": " + error.what());
  }
}

}  // namespace millrace
