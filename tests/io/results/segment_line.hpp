#pragma once

#include <cmath>
#include <string>

#include "base/json.hpp"
#include "io/files/base64.hpp"
#include "io/files/json_writer.hpp"
#include "io/results/json_line.hpp"
#include "io/results/rle.hpp"

namespace millrace {

/// A segment line as a reader may find it. Tests of readers write it here, with another JSON library and other spaces.
/// make_segment_line needs the stages; tests/stages/segment_line_test.cpp tests it.
inline std::string segment_line_of(const FrameRecord& frame) {
  using Json = nlohmann::ordered_json;
  const auto rounded = [](float value, double steps) { return std::round(double{value} * steps) / steps; };
  Json line{{"id", frame.id}, {"path", frame.path}};
  if (!is_utf8(frame.path)) line["path_b64"] = to_base64(frame.path);
  line.update({{"width", frame.width}, {"height", frame.height}, {"view", frame.view}});
  line["state"] = frame.failed ? "failed" : "ok";
  if (frame.failed) line.update({{"reason", to_string(frame.reason)}, {"detail", frame.detail}});
  if (frame.split) line["exec"] = "split";
  if (!frame.failed) {
    line["objects"] = Json::array();
    for (const Object& object : frame.objects) {
      Json& entry = line["objects"].emplace_back();
      for (const float side : {object.x, object.y, object.width, object.height})
        entry["box"].push_back(rounded(side, 100));
      entry["score"] = rounded(object.score, 1e5);
      entry["class"] = object.class_id;
      if (!object.name.empty()) entry["name"] = object.name;
      if (object.rle_counts.empty()) continue;
      entry["rle"] = {{"size", {frame.height, frame.width}}, {"counts", rle_to_string(object.rle_counts)}};
      entry["iou"] = rounded(object.predicted_iou, 1e5);
      entry["area"] = object.area;
    }
  }
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace millrace
