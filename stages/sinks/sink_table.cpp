#include <filesystem>
#include <system_error>

#include "base/text.hpp"
#include "stages/sinks/sink.hpp"

namespace millrace {

// The table of sinks, one row for each sink.
// `class` declares the sink in its row, so this file needs no header of a sink.
// The table is not in a function or an unnamed namespace, where `class` would declare another class.
// clang-format off
constexpr SinkEntry (*rows[])() = {
    sink_entry<class CocoSink>,
    sink_entry<class OverlaySink>,
    sink_entry<class LabelMapSink>,
    sink_entry<class LabelTiffSink>,
    sink_entry<class NiftiSink>,
    sink_entry<class NpySink>,
};
// clang-format on

const std::vector<SinkEntry>& sink_table() {
  static const std::vector<SinkEntry> entries = [] {
    std::vector<SinkEntry> made;
    for (const auto row : rows) made.push_back(row());
    return made;
  }();
  return entries;
}

std::vector<std::string> sink_outputs(const std::string& output_folder) {
  std::vector<std::string> there;
  for (const bool of_pictures : {true, false}) {
    for (const auto& sink : sink_table()) {
      if ((sink.make != nullptr) != of_pictures) continue;
      for (const auto& name : sink.outputs) {
        std::error_code error;  // a name that cannot be checked is not listed
        if (std::filesystem::exists(output_folder + "/" + name, error)) there.push_back(name);
      }
    }
  }
  return there;
}

const SinkEntry& find_sink(std::string_view name) {
  std::vector<std::string> names;
  for (const auto& entry : sink_table()) {
    if (entry.name == name) return entry;
    names.push_back(entry.name);
  }
  throw UsageError("encode.format takes " + listed(names) + ", not '" + std::string(name) + "'");
}

}  // namespace millrace
