#include "run/reader.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <system_error>

#include "io/files/read_file.hpp"
#include "io/input/scan.hpp"
#include "run/resampled_picture.hpp"
#include "run/resampled_volume.hpp"
#include "stages/decode.hpp"
#include "stages/pixel_cache.hpp"

namespace millrace {
namespace {

/// Source::measure() leaves size and time of a missing file at 0.
bool was_there_when_planned(const Item& item) { return item.mtime_ns != 0; }

/// The sides of a voxel along columns, lines and slices. A stage fails a volume that does not say how it lies.
std::array<double, 3> sides_in_file(const PartsOptions& options, const Directions& directions) {
  const AxisMap map = axis_map(directions, options.orientation).value_or(AxisMap{});
  std::array<double, 3> sides{};
  for (std::size_t axis = 0; axis < sides.size(); ++axis)
    sides[static_cast<std::size_t>(map.axes[axis].of_file)] = options.spacing_mm[axis];
  return sides;
}

}  // namespace

std::vector<PartsOptions> parts_options(const std::vector<PlannedView>& views, const Packages& packages,
                                        std::int64_t slab_bytes) {
  std::vector<PartsOptions> all;
  for (const PlannedView& view : views) {
    PartsOptions& options = all.emplace_back();
    const auto& decode = view.chain->options<Decode>();
    options.region.memory_bytes = slab_bytes;
    options.region.volume = decode.volume;
    options.region.level = std::max(0, decode.level);
    options.region.mpp = decode.mpp;
    // A chain has at most one stage with a model that takes such files.
    for (const ChainLink& link : view.chain->links()) {
      for (const ModelUse& use : link.info.models) {
        if (!link.info.in_parts) continue;
        const Package& package = *packages.at(use.folder);
        const auto channels = static_cast<int>(package.channels.size());
        if (package.input.keeps_values) options.region.channels = channels;
        if (package.input.depth > 0) options.region.volumes = channels;
        options.spacing_mm = package.spacing_mm;
        options.orientation = package.orientation;
        if (package.mpp > 0 && decode.level < 0 && decode.mpp == 0) {
          options.region.mpp = package.mpp;
          options.region.labels_back = true;
        }
      }
    }
  }
  return all;
}

std::int64_t Reader::file_bytes(const Frame& frame) const {
  // By name, because the source's thread opens no files.
  static constexpr std::array in_parts{"tif", "tiff", "btf", "svs", "nii", "nii.gz", "dcm"};
  const std::string extension = extension_of(frame.item.path);
  const bool known = std::ranges::find(in_parts, extension) != in_parts.end() || is_slide_name(frame.item.path);
  if (in_parts_ && known) return 0;
  if (was_there_when_planned(frame.item)) return frame.item.bytes;  // read() fails for another size
  std::error_code unknown;
  const auto bytes = std::filesystem::file_size(open_path(input_root_, frame.item), unknown);
  return unknown ? 0 : static_cast<std::int64_t>(bytes);
}

void Reader::read(Frame& frame) {
  // input.source=memory: `decode` takes the pixels from the cache, so the file is not needed.
  if (cache_ != nullptr) {
    if (const auto known = cache_->find(frame.item.path)) {
      frame.info = known->info;
      return;
    }
  }
  FileExpectations expected;
  expected.max_bytes = max_file_bytes_;
  if (was_there_when_planned(frame.item)) {
    expected.bytes = frame.item.bytes;
    expected.mtime_ns = frame.item.mtime_ns;
  }
  if (in_parts_ && open(frame, expected)) return;
  frame.file = read_file(open_path(input_root_, frame.item), expected);
  read_bytes_ += static_cast<std::int64_t>(frame.file.size);
  const auto view = static_cast<std::size_t>(frame.item.view);
  frame.info = probe(frame.file.span(), limits_.at(view));
  const RegionOptions& options = parts_.at(view).region;
  if (options.labels_back)
    throw PictureError(
        Reason::unsupported_format,
        "the package asks for micrometres a pixel, and this kind of file has none; if its pixels have the right size, "
        "give such pictures a run of their own with decode.level=0");
  if (options.level > 0 || options.mpp > 0)
    throw PictureError(Reason::unsupported_format,
                       "this picture is read whole, and has no levels or micrometres; leave out decode.level and "
                       "decode.mpp for it, and use a recipe with windows for slides");
}

// Without a limit of the file's size, since its bytes are not kept.
bool Reader::open(Frame& frame, FileExpectations expected) {
  const std::string path = open_path(input_root_, frame.item);
  if (!is_read_in_parts(path)) return false;
  expected.max_bytes = std::numeric_limits<std::int64_t>::max();
  const auto open = [this, path, expected, &options = parts_.at(static_cast<std::size_t>(frame.item.view)),
                     bytes = frame.item.bytes] {
    const RegionOptions& of_region = options.region;
    auto source = open_region(path, expected, of_region);
    if (source != nullptr && of_region.mpp > 0)
      source = resampled_picture(source, of_region.mpp, of_region.labels_back, of_region.memory_bytes);
    if (source != nullptr && source->info().volume)
      source = resampled_volume(source, sides_in_file(options, source->info().directions), of_region.memory_bytes);
    if (source != nullptr)
      read_bytes_ += bytes + source->info().other_bytes;  // the stage that needs the rows reads all of them
    return source;
  };
  frame.region = open();
  if (frame.region == nullptr) return false;
  const RegionInfo info = frame.region->info();
  frame.open_again = [open, info] {
    auto source = open();
    if (source == nullptr || source->info().size != info.size || source->info().type != info.type ||
        source->info().other_files != info.other_files)
      throw PictureError(Reason::changed_since_plan, "the file was modified while it was read");
    return source;
  };
  frame.info.format = PictureFormat::tiff;
  const Extent size = info.file_size.value_or(info.size);
  frame.info.width = frame.info.pixel_width = size.columns;
  frame.info.height = frame.info.pixel_height = info.volume ? size.lines : size.rows;
  frame.info.pixel_bytes = frame.region->memory_bytes();
  return true;
}

}  // namespace millrace
