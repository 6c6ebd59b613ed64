#include "io/results/json_line.hpp"

#include <cmath>
#include <stdexcept>

#include "base/json.hpp"
#include "io/files/base64.hpp"
#include "io/results/rle.hpp"

namespace millrace {
namespace {

Object parse_object(const nlohmann::json& json, int width, int height) {
  Object object;
  const auto& box = json.at("box");
  if (box.size() != 4) throw std::runtime_error("\"box\" has " + std::to_string(box.size()) + " numbers instead of 4");
  object.x = box[0].get<float>();
  object.y = box[1].get<float>();
  object.width = box[2].get<float>();
  object.height = box[3].get<float>();
  for (const float number : {object.x, object.y, object.width, object.height}) {
    if (!std::isfinite(number)) throw std::runtime_error("\"box\" has a number that is too large");
  }
  object.score = json.at("score").get<float>();
  object.class_id = json.at("class").get<int>();
  object.name = json.value("name", std::string());
  if (const auto rle = json.find("rle"); rle != json.end()) {
    // COCO gives the height first.
    const auto& size = rle->at("size");
    if (size.size() != 2 || size[0] != height || size[1] != width) {
      throw std::runtime_error("\"rle\" has size " + size.dump() + ", the picture [" + std::to_string(height) + "," +
                               std::to_string(width) + "]");
    }
    object.rle_counts = rle_from_string(rle->at("counts").get_ref<const std::string&>(), width, height);
    object.predicted_iou = json.at("iou").get<float>();
    object.area = json.at("area").get<std::int64_t>();
  }
  return object;
}

FrameRecord parse(const nlohmann::json& json) {
  FrameRecord frame;
  frame.id = json.at("id").get<std::int64_t>();
  // "path" is lossy if the bytes are not UTF-8; then "path_b64" has them.
  const auto exact = json.find("path_b64");
  frame.path =
      exact == json.end() ? json.at("path").get<std::string>() : from_base64(exact->get_ref<const std::string&>());
  frame.width = json.at("width").get<int>();
  frame.height = json.at("height").get<int>();
  frame.view = json.at("view").get<std::string>();
  const auto& state = json.at("state").get_ref<const std::string&>();
  if (state == "failed") {
    frame.failed = true;
    frame.reason = reason_from_string(json.at("reason").get_ref<const std::string&>());
    frame.detail = json.at("detail").get<std::string>();
  } else if (state != "ok") {
    throw std::runtime_error("\"state\" is \"" + state + "\", which is neither ok nor failed");
  }
  frame.split = json.value("exec", std::string()) == "split";
  if (const auto objects = json.find("objects"); objects != json.end()) {
    for (const auto& object : *objects) frame.objects.push_back(parse_object(object, frame.width, frame.height));
  }
  return frame;
}

}  // namespace

void write_head(const FrameRecord& frame, JsonWriter& json) {
  json.key(line_keys("id")).value(frame.id);
  write_path(line_keys("path"), frame.path, json);
  json.key(line_keys("width")).value(frame.width).key(line_keys("height")).value(frame.height);
  json.key(line_keys("view")).value(frame.view);
  json.key(line_keys("state")).value(frame.failed ? "failed" : "ok");
  if (frame.failed)
    json.key(line_keys("reason")).value(to_string(frame.reason)).key(line_keys("detail")).value(frame.detail);
  if (frame.split) json.key(line_keys("exec")).value("split");
}

void write_rle(std::span<const std::uint32_t> counts, int width, int height, JsonWriter& json) {
  std::int64_t pixels = 0;
  for (const auto count : counts) pixels += count;
  if (pixels != std::int64_t{width} * height) {
    throw std::invalid_argument("a mask of " + std::to_string(pixels) + " pixels for a picture of " +
                                std::to_string(width) + "x" + std::to_string(height));
  }
  json.begin_object().key("size").begin_array().value(height).value(width).end_array();
  json.key("counts").value(rle_to_string(counts)).end_object();
}

void write_path(std::string_view key, std::string_view path, JsonWriter& json) {
  json.key(key).value(path);
  if (!is_utf8(path)) json.key(line_keys("path_b64")).value(to_base64(path));
}

FrameRecord parse_frame(std::string_view line) {
  try {
    return parse(nlohmann::json::parse(line));
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string("a segment line cannot be read: ") + error.what() + "; the line begins " +
                             std::string(line.substr(0, 120)));
  }
}

}  // namespace millrace
