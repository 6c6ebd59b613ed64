#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/results/object.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// What a sink makes of single pictures. One object for all, called from many threads at once.
class PictureSink {
 public:
  virtual ~PictureSink() = default;
  /// The content of the picture's file; empty: it gets none. What this throws fails the picture, which then has no file
  /// of any sink.
  virtual std::vector<std::uint8_t> encode(const Frame& frame, std::span<const Object> objects) const = 0;
};

/// A row of the table in sink_table.cpp: what `encode.format` can name. A sink makes a file for each picture (`make`),
/// or something from the whole output when a run has finished (`finish`), or both.
struct SinkEntry {
  std::string name;
  std::string help{};  ///< a few words; empty where the name says it
  /// What it writes, below the output folder, as it may be called. Files of pictures are in the first, a folder, which
  /// mirrors the input: docs/formats.md.
  std::vector<std::string> outputs;
  std::string suffix{};         ///< of a picture's file: ".jpg"
  Fields reads{};               ///< beside detections and masks, which are read where they are there
  CounterInfos counters{};      ///< what it counts
  std::string without_masks{};  ///< a note for a run whose recipe writes no masks; empty: none
  std::unique_ptr<PictureSink> (*make)(const StageContext& context) = nullptr;
  void (*finish)(const std::string& output_folder) = nullptr;
};

/// The row of sink S, which has `static SinkEntry entry()`. Defined in stages/sinks/sink_entry.hpp and instantiated in
/// the sink's own source, so that the table needs no header of it.
template <class S>
SinkEntry sink_entry();

/// Every sink the program knows.
const std::vector<SinkEntry>& sink_table();

/// Of what all sinks may have written, what is in an output folder: the folders of pictures' files first.
std::vector<std::string> sink_outputs(const std::string& output_folder);

/// The row of that name; throws UsageError that names all there are.
const SinkEntry& find_sink(std::string_view name);

}  // namespace millrace
