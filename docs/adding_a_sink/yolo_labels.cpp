#include <cstdio>

#include "stages/sinks/sink_entry.hpp"

namespace millrace {

/// One line per object: class, then centre and size of the box as shares of the picture. Ultralytics' "YOLO format".
class YoloLabels final : public PictureSink {
 public:
  static SinkEntry entry() {
    return {.name = "yolo",
            .help = "labels to train with",
            .outputs = {"yolo"},
            .suffix = ".txt",
            .make = [](const StageContext&) -> std::unique_ptr<PictureSink> { return std::make_unique<YoloLabels>(); }};
  }

  std::vector<std::uint8_t> encode(const Frame& frame, std::span<const Object> objects) const override {
    std::vector<std::uint8_t> text;
    const double width = frame.info.width, height = frame.info.height;
    for (const Object& object : objects) {
      char line[128];
      const int length = std::snprintf(
          line, sizeof line, "%d %.6f %.6f %.6f %.6f\n", object.class_id, (object.x + object.width / 2.0) / width,
          (object.y + object.height / 2.0) / height, object.width / width, object.height / height);
      text.insert(text.end(), line, line + length);
    }
    return text;
  }
};

template SinkEntry sink_entry<YoloLabels>();

}  // namespace millrace
