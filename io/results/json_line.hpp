#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/keys.hpp"
#include "io/files/json_writer.hpp"
#include "io/files/reason.hpp"
#include "io/results/object.hpp"

namespace millrace {

/// The keys of a segment line but those of stages' fields, which may have none of these names.
inline constexpr Keys line_keys{"id",    "path",   "path_b64", "width", "height", "view",
                                "state", "reason", "detail",   "exec",  "objects"};

/// One line of a segment: a picture and what was found in it. docs/formats.md describes the text.
struct FrameRecord {
  std::int64_t id = 0;  ///< position in the plan
  std::string path;     ///< bytes as the file system has them
  int width = 0;        ///< pixels after EXIF orientation; 0 where the picture failed before they were known
  int height = 0;
  std::string view;  ///< name of the view
  bool failed = false;
  Reason reason = Reason::internal;  ///< of a failed picture
  std::string detail;                ///< of a failed picture: a sentence for people
  bool split = false;                ///< a model call of it did not have the planned shape ("exec": "split")
  std::vector<Object> objects;       ///< of a picture that did not fail
};

/// The whole line without its newline. Boxes are rounded to 1/100 pixel, score and iou to 1e-5. Throws
/// std::domain_error when a number is NaN or infinite and std::invalid_argument when a mask does not have the picture's
/// size.
std::string frame_line(const FrameRecord& frame);

/// The parts of frame_line(), for a caller that adds keys of its own. Each writes its keys into the object that is
/// open. write_head: id, path, [path_b64,] width, height, view, state, [reason, detail,] [exec]. It does not look at
/// `objects`.
void write_head(const FrameRecord& frame, JsonWriter& json);
/// write_object: box, score, class, name where the class has one and, where there is a mask, rle, iou, area.
void write_object(const Object& object, int picture_width, int picture_height, JsonWriter& json);

/// A COCO run-length mask as the value of the key just written: {"size": [height, width], "counts": "..."}.
void write_rle(std::span<const std::uint32_t> counts, int width, int height, JsonWriter& json);

/// A picture's path as text and, where it is not UTF-8, its exact bytes: `path` and `path_b64`.
void write_path(std::string_view key, std::string_view path, JsonWriter& json);

/// Reads a line back; keys it does not know are passed over. Throws std::runtime_error that says what is wrong with
/// which line.
FrameRecord parse_frame(std::string_view line);

}  // namespace millrace
