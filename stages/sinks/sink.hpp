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

/// The part of a sink that makes a file for each picture. Many threads call one object at once.
class PictureSink {
 public:
  virtual ~PictureSink() = default;
  /// The content of the picture's file; empty: no file.
  /// An exception fails the picture, and no sink then writes a file for it.
  virtual std::vector<std::uint8_t> encode(const Frame& frame, std::span<const Object> objects) const = 0;
  /// Whether fill() makes the files: for label files that need not fit into memory. Then encode() only says if there is
  /// one.
  virtual bool fills() const { return false; }
  /// Writes the picture's file. The descriptor is open for reading and writing. Exceptions as above.
  virtual void fill(const Frame& /*frame*/, int /*descriptor*/) const {}
};

/// A row of the table in sink_table.cpp: a sink that `encode.format` can name.
/// It makes a file for each picture (`make`), or files from the whole output (`finish`), or both.
struct SinkEntry {
  std::string name;
  std::string help{};  ///< a few words; empty if the name is enough
  /// Possible names of its files and folders in the output folder.
  /// With `make`, the first is the folder of the pictures' files, which mirrors the input: docs/formats.md.
  std::vector<std::string> outputs;
  std::string suffix{};     ///< of a picture's file: ".jpg"
  Fields reads{};           ///< fields in addition to detections and masks, which it gets if they exist
  CounterInfos counters{};  ///< counters that it counts
  bool of_labels = false;   ///< lines with a class for each pixel name its files, with their hashes
  enum class Items { all, pictures, volumes };
  Items items = Items::all;     ///< those that have its files, if a model finds the class of each pixel or voxel
  std::string without_masks{};  ///< a note for a run whose recipe writes no masks; empty: no note
  std::unique_ptr<PictureSink> (*make)(const StageContext& context) = nullptr;
  void (*finish)(const std::string& output_folder) = nullptr;  ///< called once, after a run has finished
};

/// The row of sink S, which has `static SinkEntry entry()`. It is declared here so that the table needs no header of S.
/// stages/sinks/sink_entry.hpp defines it, and the source of the sink instantiates it.
template <class S>
SinkEntry sink_entry();

/// Every sink of the program.
const std::vector<SinkEntry>& sink_table();

/// The outputs of sinks that exist in an output folder. Folders with a file for each picture come first.
std::vector<std::string> sink_outputs(const std::string& output_folder);

/// The row of that name. Throws UsageError for an unknown name, and lists the known ones.
const SinkEntry& find_sink(std::string_view name);

}  // namespace millrace
