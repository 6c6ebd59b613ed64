#pragma once

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "io/results/json_line.hpp"
#include "io/results/rle.hpp"
#include "io/results/segments.hpp"
#include "tests/io/results/segment_line.hpp"

namespace millrace {

/// Writes an output folder with one committed segment of `count` pictures from two views.
/// The models of the views number their classes differently.
/// Some objects have no mask, some pictures failed, and some names are not UTF-8. Returns the records of all pictures.
inline std::vector<FrameRecord> write_sample_output(const std::string& folder, int count) {
  std::mt19937 random(6);
  std::vector<FrameRecord> frames;
  for (int i = 0; i < count; ++i) {
    FrameRecord frame;
    frame.id = i;
    frame.path = i % 5 == 0 ? "dir/\xFF\n" + std::to_string(i) + ".jpg" : "dir/" + std::to_string(i) + ".jpg";
    frame.view = i % 2 == 0 ? "front" : "side";
    frame.width = 20 + i;
    frame.height = 31;
    if (i % 7 == 6) {
      frame.failed = true;
      frame.reason = Reason::truncated;
      frame.detail = "the data end early";
      frames.push_back(frame);
      continue;
    }
    const std::string names[2][3] = {{"person", "car", ""}, {"car", "person", "tree"}};
    for (int k = 0; k < i % 6; ++k) {
      Object object;
      object.x = static_cast<float>(random() % 1000) / 100;
      object.y = static_cast<float>(random() % 1000) / 100;
      object.width = 1 + static_cast<float>(random() % 1000) / 100;
      object.height = 1 + static_cast<float>(random() % 1000) / 100;
      object.score = static_cast<float>(random() % 100'000) / 100'000;
      object.class_id = k % 3;
      object.name = names[i % 2][k % 3];
      if (k != 4) {
        std::vector<std::uint8_t> mask(static_cast<std::size_t>(frame.width * frame.height));
        for (auto& pixel : mask) pixel = random() % 4 == 0 ? 1 : 0;
        object.rle_counts = rle_encode(mask, frame.width, frame.height);
        object.area = rle_area(object.rle_counts);
        object.predicted_iou = 0.875F;
      }
      frame.objects.push_back(object);
    }
    frames.push_back(frame);
  }
  std::filesystem::create_directories(folder + "/segments");
  SegmentStore store(folder, "0123456789abcdef");
  std::vector<std::int64_t> ids;
  std::vector<int> rows;
  std::vector<Line> lines;
  for (const auto& frame : frames) {
    ids.push_back(frame.id);
    rows.push_back(static_cast<int>(frame.id));
    lines.push_back(
        {frame.id, segment_line_of(frame), !frame.failed, frame.reason, static_cast<int>(frame.objects.size())});
  }
  store.open_segment(0, ids, {rows});
  store.append(0, 0, lines);
  return frames;
}

}  // namespace millrace
