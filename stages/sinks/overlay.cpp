#include <algorithm>
#include <cstring>
#include <mutex>

#include "io/files/read_file.hpp"
#include "io/sinks/image_write.hpp"
#include "io/sinks/overlay_opener.hpp"
#include "stages/class_map.hpp"
#include "stages/decode.hpp"
#include "stages/points.hpp"
#include "stages/sinks/sink_entry.hpp"

namespace millrace {
namespace {

constexpr int overlay_quality = 90;
constexpr int longest_jpeg_side = 65'500;  // JPEG_MAX_DIMENSION of libjpeg
// The maximum raster of an overlay. A picture that was reduced for the models is decoded again for its overlay.
// A picture of 8000 x 6000 pixels fits without reduction.
constexpr std::int64_t overlay_bytes = std::int64_t{256} << 20;

constexpr CounterInfo overlays_left_out{"overlays_left_out"};  // pictures with a side above longest_jpeg_side

/// Points as objects, each with a small box around it.
std::vector<Object> objects_of(const Points& points, const PictureInfo& info) {
  const float side = std::max(8.0F, 0.01F * static_cast<float>(std::max(info.width, info.height)));
  std::vector<Object> objects;
  for (std::size_t channel = 0; channel < points.channels.size(); ++channel) {
    for (const Point& point : points.channels[channel]) {
      Object object;
      object.x = static_cast<float>(point.columns) - side / 2;
      object.y = static_cast<float>(point.rows) - side / 2;
      object.width = object.height = side;
      object.score = point.value;
      object.class_id = static_cast<int>(channel);
      object.name = points.names[channel];
      objects.push_back(std::move(object));
    }
  }
  return objects;
}

}  // namespace

/// A JPEG of the picture with its objects drawn on it: docs/formats.md.
class OverlaySink final : public PictureSink {
 public:
  static SinkEntry entry() {
    return {.name = "overlay",
            .outputs = {"overlay"},
            .suffix = ".jpg",
            .reads = {&pixels},
            .counters = {&overlays_left_out},
            .items = SinkEntry::Items::pictures,
            .make = [](const StageContext& context) -> std::unique_ptr<PictureSink> {
              return std::make_unique<OverlaySink>(context);
            }};
  }

  explicit OverlaySink(const StageContext& context) : context_(context), draw_(open_overlay_drawing()) {}

  // Empty for a picture that is too large for a JPEG.
  std::vector<std::uint8_t> encode(const Frame& frame, std::span<const Object> objects) const override {
    PictureInfo info = frame.info;
    // The gate has granted no bytes for a second raster.
    std::unique_lock<std::mutex> one_at_a_time(large_, std::defer_lock);
    if (info.reduction > 1) one_at_a_time.lock();
    const PixelBuffer raster = raster_of(frame, info);
    // The picture keeps its results and only has no overlay.
    if (std::max(raster.width, raster.height) > longest_jpeg_side) {
      ++context_.counters[overlays_left_out];
      return {};
    }
    OverlayClasses classes;
    if (const ClassMap* map = frame.columns.find(class_map)) classes = {map->labels.get(), map->names};
    const Points* points = frame.columns.find(points_found);
    draw_(raster, info, points != nullptr ? objects_of(*points, info) : objects, classes);
    return encode_jpeg(raster.data.get(), raster.width, raster.height, overlay_quality);
  }

 private:
  PixelBuffer raster_of(const Frame& frame, PictureInfo& info) const {
    if (info.reduction == 1) {
      const PixelBuffer& original = frame.columns.get(pixels);  // other sinks may read it: draw on a copy
      PixelBuffer copy{original.width, original.height, pixels_on_heap(static_cast<std::size_t>(info.pixel_bytes))};
      std::memcpy(copy.data.get(), original.data.get(), static_cast<std::size_t>(info.pixel_bytes));
      return copy;
    }
    DecodeLimits limits = context_.source.limits.at(static_cast<std::size_t>(frame.item.view));
    limits.slab_bytes = std::max(limits.slab_bytes, overlay_bytes);
    // `decode` has freed the file.
    const FileBytes file = read_file(open_path(context_.source.root, frame.item), {});
    context_.counters.bytes_read_again += static_cast<std::int64_t>(file.size);
    // With the new limits, so that `info` describes the raster that decode() makes.
    info = probe(file.span(), limits);
    return decode(file.span(), info, limits, pixels_on_heap).pixels;
  }

  const StageContext& context_;
  OverlayDrawing* const draw_;
  mutable std::mutex large_;  // limits memory: only one picture at a time is decoded again
};

template SinkEntry sink_entry<OverlaySink>();

}  // namespace millrace
