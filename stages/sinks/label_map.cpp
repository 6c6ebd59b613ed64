#include "io/sinks/label_map.hpp"

#include "stages/sinks/sink_entry.hpp"

namespace millrace {

/// Which object a pixel belongs to, as a PNG: docs/formats.md.
class LabelMapSink final : public PictureSink {
 public:
  static SinkEntry entry() {
    return {
        .name = "png",
        .help = "16-bit label maps",
        .outputs = {"labels"},
        .suffix = ".png",
        .without_masks =
            "--format png without a segmenter: only masks leave pixels, so the label maps will be empty; leave png "
            "out, or take a recipe with 'segment' and 'postprocess'",
        .make = [](const StageContext&) -> std::unique_ptr<PictureSink> { return std::make_unique<LabelMapSink>(); }};
  }

  std::vector<std::uint8_t> encode(const Frame& frame, std::span<const Object> objects) const override {
    return encode_label_map(frame.info.width, frame.info.height, objects);
  }
};

template SinkEntry sink_entry<LabelMapSink>();

}  // namespace millrace
