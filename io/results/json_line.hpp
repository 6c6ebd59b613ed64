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

/// The keys of a segment line, except those of stages' fields. A field may have none of these names.
inline constexpr Keys line_keys{"id",    "path",   "path_b64", "width", "height", "view",
                                "state", "reason", "detail",   "exec",  "objects"};

/// One line of a segment: a picture and its objects.
/// docs/formats.md describes the text; make_segment_line in stages/encode.hpp writes it.
struct FrameRecord {
  std::int64_t id = 0;  ///< position in the plan
  std::string path;     ///< bytes as the file system has them
  int width = 0;        ///< pixels after EXIF orientation; 0 if the picture failed before they were known
  int height = 0;
  std::string view;  ///< name of the view
  bool failed = false;
  Reason reason = Reason::internal;  ///< of a failed picture
  std::string detail;                ///< of a failed picture: a sentence for people
  bool split = false;                ///< a model call for it did not have the planned shape ("exec": "split")
  std::vector<Object> objects;       ///< of a picture that did not fail
};

/// Writes the keys of a line that precede those of stages' fields, into the open object. It ignores `objects`.
/// The keys are id, path, [path_b64,] width, height, view, state, [reason, detail,] [exec].
void write_head(const FrameRecord& frame, JsonWriter& json);

/// Writes a COCO run-length mask as the value of the key just written: {"size": [height, width], "counts": "..."}.
/// Throws std::invalid_argument if the mask does not have that size.
void write_rle(std::span<const std::uint32_t> counts, int width, int height, JsonWriter& json);

/// Writes a picture's path as text under `key`. If it is not UTF-8, its exact bytes follow under `path_b64`.
void write_path(std::string_view key, std::string_view path, JsonWriter& json);

/// Reads a line back and ignores keys that it does not know.
/// Throws std::runtime_error, which says what is wrong with which line.
FrameRecord parse_frame(std::string_view line);

}  // namespace millrace
