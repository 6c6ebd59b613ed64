// The part of `millrace compare` that draws pictures.
#include <algorithm>
#include <cstring>
#include <memory>
#include <stdexcept>

#include "apps/compare.hpp"
#include "io/decode/decode.hpp"
#include "io/files/read_file.hpp"
#include "io/files/source_names.hpp"
#include "io/results/plan_files.hpp"
#include "io/sinks/image_write.hpp"
#include "io/sinks/overlay_opener.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

constexpr int quality = 90;
constexpr int gap = 16;               // white columns between the two pictures
constexpr int longest_side = 65'500;  // of a JPEG
constexpr std::size_t pixel_bytes = 3;

/// The folder from which relative paths of a plan start.
std::string root_of(const std::string& output) {
  const auto plan = PlanFiles(output).read_plan();
  if (!plan) throw UsageError("'" + display_name(output) + "' has no plan: it is not an output folder of Millrace");
  const auto root = picture_root(*plan);
  if (!root) throw UsageError("the plan of '" + display_name(output) + "' does not name the folder of its pictures");
  return *root;
}

/// Both rasters side by side.
std::vector<std::uint8_t> side_by_side(const PixelBuffer& left, const PixelBuffer& right) {
  const auto row = static_cast<std::size_t>(left.width) * pixel_bytes;
  const auto full_row = 2 * row + gap * pixel_bytes;
  std::vector<std::uint8_t> both(full_row * static_cast<std::size_t>(left.height), 255);
  for (std::size_t y = 0; y < static_cast<std::size_t>(left.height); ++y) {
    std::memcpy(both.data() + y * full_row, left.data.get() + y * row, row);
    std::memcpy(both.data() + y * full_row + row + gap * pixel_bytes, right.data.get() + y * row, row);
  }
  return both;
}

/// Throws PictureError for a picture that cannot be read or decoded.
std::vector<std::uint8_t> drawn(const PictureDifference& difference, const std::string& file, OverlayDrawing* draw) {
  const FileBytes bytes = read_file(file, {});
  const DecodeLimits limits;
  const PictureInfo info = probe(bytes.span(), limits);
  if (info.width != difference.first.width || info.height != difference.first.height)
    throw std::runtime_error("its size is no longer that of the runs");
  if (2 * info.pixel_width + gap > longest_side || info.pixel_height > longest_side)
    throw std::runtime_error("two of them side by side are too wide for a JPEG");
  const Decoded left = decode(bytes.span(), info, limits, pixels_on_heap);
  const PixelBuffer right{left.pixels.width, left.pixels.height,
                          pixels_on_heap(static_cast<std::size_t>(info.pixel_bytes))};
  std::memcpy(right.data.get(), left.pixels.data.get(), static_cast<std::size_t>(info.pixel_bytes));
  draw(left.pixels, info, difference.first.objects, {});
  draw(right, info, difference.second.objects, {});
  return encode_jpeg(side_by_side(left.pixels, right).data(), 2 * left.pixels.width + gap, left.pixels.height, quality);
}

}  // namespace

std::vector<std::string> draw_differences(const std::vector<PictureDifference>& worst, const std::string& output,
                                          const std::string& folder) {
  const std::string root = root_of(output);
  OverlayDrawing* const draw = open_overlay_drawing();
  make_folder(folder);
  std::vector<std::string> left_out;
  for (std::size_t i = 0; i < worst.size(); ++i) {
    const std::string& path = worst[i].first.path;
    const std::string file = path.starts_with('/') ? path : root + "/" + path;
    try {
      const auto jpeg = drawn(worst[i], file, draw);
      write_durably(folder, std::to_string(i + 1) + ".jpg", {reinterpret_cast<const char*>(jpeg.data()), jpeg.size()});
    } catch (const StorageError&) {
      throw;
    } catch (const std::runtime_error& error) {
      left_out.push_back("'" + display_name(file) + "' is not drawn: " + error.what());
    }
  }
  return left_out;
}

}  // namespace millrace
