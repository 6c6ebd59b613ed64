#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace millrace {

/// A box from a manifest, which replaces the detector. In picture pixels after EXIF orientation, COCO order.
struct PromptBox {
  float x = 0, y = 0, width = 0, height = 0;
  int class_id = 0;
};

/// One picture of the plan.
struct Item {
  std::int64_t id = 0;        ///< position in the plan, from 0, without gaps
  std::string path;           ///< bytes as the file system has them; relative to Plan::root unless it starts with '/'
  std::int64_t bytes = 0;     ///< size when planned
  std::int64_t mtime_ns = 0;  ///< modification time when planned; compared only for equality
  int view = 0;               ///< index into the run's views
  std::optional<std::vector<PromptBox>> boxes;  ///< from a manifest; an empty list means "no objects here"
};

}  // namespace millrace
