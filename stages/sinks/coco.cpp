#include "io/sinks/coco.hpp"

#include "stages/sinks/sink_entry.hpp"

namespace millrace {

/// All pictures and objects as COCO JSON: docs/formats.md.
class CocoSink {
 public:
  static SinkEntry entry() {
    return {
        .name = "coco", .outputs = {"coco.json", "coco-00001.json"}, .finish = [](const std::string& output_folder) {
          export_coco(output_folder, output_folder + "/coco.json", {});
        }};
  }
};

template SinkEntry sink_entry<CocoSink>();

}  // namespace millrace
