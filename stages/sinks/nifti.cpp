#include "io/sinks/label_nifti.hpp"
#include "stages/class_map.hpp"
#include "stages/sinks/sink_entry.hpp"

namespace millrace {

/// A compressed NIfTI with the class of each voxel, at the place of the volume in space.
class NiftiSink final : public PictureSink {
 public:
  static SinkEntry entry() {
    return {.name = "nifti",
            .help = "labels of volumes",
            .outputs = {"label_volumes"},
            .suffix = ".nii.gz",
            .reads = {&class_map},
            .of_labels = true,
            .items = SinkEntry::Items::volumes,
            .make = [](const StageContext&) -> std::unique_ptr<PictureSink> { return std::make_unique<NiftiSink>(); }};
  }

  // Not empty: every volume has a file, but no picture.
  std::vector<std::uint8_t> encode(const Frame& frame, std::span<const Object> /*objects*/) const override {
    return std::vector<std::uint8_t>(frame.columns.get(class_map).volume ? 1 : 0);
  }
  bool fills() const override { return true; }
  void fill(const Frame& frame, int descriptor) const override {
    const ClassMap& map = frame.columns.get(class_map);
    write_label_nifti(descriptor, map.nifti_header, *map.labels);
  }
};

template SinkEntry sink_entry<NiftiSink>();

}  // namespace millrace
