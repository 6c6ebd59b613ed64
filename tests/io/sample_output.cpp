// Writes an output folder for parity_test.py: segments, label maps, overlays, and the COCO export whole and split.
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "io/sinks/coco.hpp"
#include "io/sinks/image_write.hpp"
#include "io/sinks/label_map.hpp"
#include "io/sinks/overlay.hpp"
#include "io/sinks/side_files.hpp"
#include "tests/io/sinks/coco_output.hpp"

int main(int argc, char** argv) try {
  using namespace millrace;
  if (argc != 2) return std::fprintf(stderr, "usage: io_sample_output NEW_FOLDER\n"), 2;
  const std::string out = argv[1];
  std::filesystem::create_directories(out + "/parts");
  const SideFiles labels(out, "labels", ".png"), overlays(out, "overlay", ".jpg");
  for (const auto& frame : write_sample_output(out, 40)) {
    if (frame.failed) continue;
    labels.write(frame.id, frame.path, encode_label_map(frame.width, frame.height, frame.objects));
    const auto bytes = static_cast<std::size_t>(3 * frame.width * frame.height);
    const PixelBuffer raster{
        frame.width, frame.height,
        std::shared_ptr<std::uint8_t>(new std::uint8_t[bytes](), std::default_delete<std::uint8_t[]>())};
    PictureInfo info;
    info.width = info.pixel_width = frame.width;
    info.height = info.pixel_height = frame.height;
    draw_overlay(raster, info, frame.objects);
    overlays.write(frame.id, frame.path, encode_jpeg(raster.data.get(), frame.width, frame.height, 90));
  }
  export_coco(out, out + "/coco.json");
  export_coco(out, out + "/parts/coco.json", {10});
  return 0;
} catch (const std::exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
