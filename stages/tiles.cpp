#include "stages/tiles.hpp"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>

#include "stages/decode.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {
namespace {

constexpr int max_side = 8192;

int side_of(const std::string& text) {
  int side = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
  if (error != std::errc() || end != text.data() + text.size() || side < 1 || side > max_side)
    throw UsageError("tiles.roi has '" + text + "'; a side of a window is a whole number from 1 to " +
                     std::to_string(max_side));
  return side;
}

std::optional<float> bound_of(const char* name, const std::string& text) {
  if (text.empty()) return {};
  float bound = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bound);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(bound))
    throw UsageError("tiles." + std::string(name) + " is '" + text +
                     "'; it must be a number, as pixels of the file have");
  return bound;
}

Tiling::Axes axes_of(const std::vector<std::string>& names) {
  Tiling::Axes axes;
  for (const std::string& name : names) {
    if (name == "x") {
      axes.x = true;
    } else if (name == "y") {
      axes.y = true;
    } else if (name == "z") {
      axes.z = true;
    } else {
      throw UsageError("tiles.tta has '" + name + "'; it lists axes: x, y, and of volumes z");
    }
  }
  return axes;
}

}  // namespace

void Tiles::Options::visit(OptionVisitor& v) {
  v.option(
      "roi", roi,
      "sides of a window, in the order of the model's axes, or one number for all; the default is that of the package");
  v.option("overlap", overlap, "share of a window that the next one repeats", {0, 0.99});
  v.option("weights", weights, "weights of windows where they overlap: gaussian, or constant");
  v.option("sigma", sigma, "standard deviation of the Gaussian, as a share of a window's side", {0.01, 10});
  v.option("align", align, "windows start at multiples of this, such as the stride of the model", {1, 1024});
  v.option("bad", bad,
           "broken tiles and strips of files that are read in parts: fail, or skip (their pixels get the label 255)");
  v.option("skip_above", skip_above, "windows need no model if all their pixels exceed this, such as 220 for white");
  v.option("skip_below", skip_below,
           "windows need no model if all their pixels are less than this, such as -900 for air");
  v.option(
      "mask", mask,
      "folder with a mask of each picture, such as label maps of an earlier run: windows in which it is all 0 need no "
      "model");
  v.option(
      "tta", tta,
      "axes along which windows are mirrored, such as x,y: the model sees each window in all ways, and the results "
      "have the mean");
}

std::vector<int> Tiles::Options::sides() const {
  if (roi.size() > 3)
    throw UsageError("tiles.roi has more than three numbers; a window of a picture has two sides, of a volume three");
  std::vector<int> sides;
  for (const std::string& side : roi) sides.push_back(side_of(side));
  return sides;
}

Tiling Tiles::Options::tiling() const {
  WindowOptions options;
  options.roi = {0, 0, 0};
  options.overlap = overlap;
  if (weights != "gaussian" && weights != "constant")
    throw UsageError("tiles.weights is '" + weights + "'; it must be gaussian or constant");
  options.weights = weights == "gaussian" ? WindowWeights::gaussian : WindowWeights::constant;
  options.sigma = sigma;
  options.align = align;
  if (bad != "fail" && bad != "skip") throw UsageError("tiles.bad is '" + bad + "'; it must be fail or skip");
  return {
      options, bad == "skip", {bound_of("skip_above", skip_above), bound_of("skip_below", skip_below)}, axes_of(tta)};
}

StageInfo Tiles::info(const Options& options) {
  std::error_code unknown;
  if (!options.mask.empty() && !std::filesystem::is_directory(options.mask, unknown))
    throw UsageError("tiles.mask is '" + options.mask + "', which is no folder; name the folder with the masks");
  StageInfo info{.name = name,
                 .section = Section::frame,
                 .summary = "how pictures and volumes are cut into windows that overlap",
                 .reads = {&pixels},
                 .writes = {&tiling},
                 .uses = {}};
  info.window = options.sides();
  info.in_parts = true;
  info.window_align = options.align;
  info.mirrors_z = options.tiling().mirrored.z;
  info.compares_values = options.tiling().empty.any();
  return info;
}

Tiles::Tiles(const Options& options, const StageContext& context) : source_(context.source), tiling_(options.tiling()) {
  if (!options.mask.empty()) masks_.emplace(options.mask);
}

void Tiles::run(Frame& frame) const {
  if (frame.region == nullptr && frame.info.reduction != 1)
    throw PictureError(Reason::too_large,
                       "its pixels need " + std::to_string(std::int64_t{3} * frame.info.width * frame.info.height) +
                           " bytes, more than gate.slab; windows need all pixels, so raise gate.slab");
  Tiling of_frame = tiling_;
  if (masks_) {
    const RegionInfo* const region = frame.region != nullptr ? &frame.region->info() : nullptr;
    of_frame.mask = masks_->read(frame.item.path, region != nullptr && region->volume,
                                 region != nullptr ? region->directions : Directions{},
                                 source_.limits.at(static_cast<std::size_t>(frame.item.view)).slab_bytes);
  }
  frame.columns.set(tiling, std::move(of_frame));
}

template StageEntry stage_entry<Tiles>();

}  // namespace millrace
