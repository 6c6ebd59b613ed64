#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "stages/postprocess.hpp"
#include "tests/io/decode/decode_inputs.hpp"
#include "tests/io/files/temporary_folder.hpp"
#include "tests/stages/stage_fixture.hpp"

namespace millrace {

inline Encode::Options with_format(const std::vector<std::string>& format) {
  return parse_options<Encode::Options>("encode", {{"format", format}});
}

/// A picture with one object that fills its left half.
inline std::shared_ptr<Frame> frame_with_object(float score = 0.5F, int slot = 0) {
  auto frame = picture(200, slot, 2);
  Detections found;
  found.list.push_back({0, 0, side / 2, side, score, 1});
  frame->columns.set(detections, std::move(found));
  frame->columns.set(masks, {Mask{{0, side * side / 2, side * side / 2}, side, side, side * side / 2, 0.75F}});
  return frame;
}

/// StageFixture with a temporary folder, which is both the input and the output folder.
struct SinkWorld : StageFixture {
  SinkWorld() {
    output_folder = folder.path();
    source().root = folder.path();
    add_view_without_detector();
  }
  bool has(const std::string& file) const { return std::filesystem::exists(folder.path() + "/" + file); }
  test::File file(const std::string& name) const {
    std::ifstream stream(folder.path() + "/" + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  /// The value of the counter with this name in the report; -1 if it does not exist.
  std::int64_t counted(const std::string& name) const {
    for (const auto& [other, count] : counters.counts()) {
      if (other == name) return count;
    }
    return -1;
  }
  TemporaryFolder folder;
};

}  // namespace millrace
