#include "io/sinks/label_map.hpp"

#include "io/sinks/image_write.hpp"

#include "stages/class_map.hpp"
#include "stages/sinks/sink_entry.hpp"

namespace millrace {

/// A PNG with the class or the object of each pixel: docs/formats.md.
class LabelMapSink final : public PictureSink {
 public:
  static SinkEntry entry() {
    return {
        .name = "png",
        .help = "label maps",
        .outputs = {"labels"},
        .suffix = ".png",
        .of_labels = true,
        .items = SinkEntry::Items::pictures,
        .without_masks =
            "--format png without a segmenter makes empty label maps, because only masks have pixels; leave png "
            "out, or use a recipe with 'segment' and 'postprocess'",
        .make = [](const StageContext&) -> std::unique_ptr<PictureSink> { return std::make_unique<LabelMapSink>(); }};
  }

  std::vector<std::uint8_t> encode(const Frame& frame, std::span<const Object> objects) const override {
    if (const ClassMap* map = frame.columns.find(class_map)) {
      if (map->volume) return {};
      GreyPng png(map->size.columns, map->size.rows, 8);
      map->labels->read([&](int /*first*/, std::span<const std::uint8_t> labels) {
        for (std::size_t at = 0; at < labels.size(); at += static_cast<std::size_t>(map->size.columns))
          png.add_row(labels.data() + at);
      });
      return png.finish();
    }
    return encode_label_map(frame.info.width, frame.info.height, objects);
  }
};

template SinkEntry sink_entry<LabelMapSink>();

}  // namespace millrace
