#include "io/sinks/coco.hpp"

#include "stages/sinks/sink_entry.hpp"

namespace millrace {

/// All pictures and objects as COCO JSON: docs/formats.md.
class CocoSink {
 public:
  static SinkEntry entry() {
    // The second output is the first part of an export that is split.
    return {
        .name = "coco", .outputs = {"coco.json", "coco-00001.json"}, .finish = [](const std::string& output_folder) {
          export_coco(output_folder, output_folder + "/coco.json", {});
        }};
  }
};

template SinkEntry sink_entry<CocoSink>();

}  // namespace millrace
