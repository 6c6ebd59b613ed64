#include "io/sinks/label_tiff.hpp"

#include "stages/class_map.hpp"
#include "stages/sinks/sink_entry.hpp"

namespace millrace {

/// A TIFF pyramid with the class of each pixel: docs/formats.md.
class LabelTiffSink final : public PictureSink {
 public:
  static SinkEntry entry() {
    return {
        .name = "tiff",
        .help = "label maps as pyramids, for large pictures",
        .outputs = {"label_pyramids"},
        .suffix = ".tif",
        .reads = {&class_map},
        .of_labels = true,
        .items = SinkEntry::Items::pictures,
        .make = [](const StageContext&) -> std::unique_ptr<PictureSink> { return std::make_unique<LabelTiffSink>(); }};
  }

  // Not empty: every picture has a file, but no volume.
  std::vector<std::uint8_t> encode(const Frame& frame, std::span<const Object> /*objects*/) const override {
    return std::vector<std::uint8_t>(frame.columns.get(class_map).volume ? 0 : 1);
  }
  bool fills() const override { return true; }
  void fill(const Frame& frame, int descriptor) const override {
    const ClassMap& map = frame.columns.get(class_map);
    writer_(descriptor, map.size.columns, map.size.rows, map.geo, *map.labels);
  }

 private:
  LabelTiffWriter& writer_ = find_label_tiff_writer();
};

template SinkEntry sink_entry<LabelTiffSink>();

}  // namespace millrace
