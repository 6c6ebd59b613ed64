#include <stdexcept>
#include <utility>

#include "base/json.hpp"
#include "io/files/lock.hpp"
#include "io/reducers/reducer.hpp"
#include "io/results/output_contents.hpp"

namespace millrace {

// The table of reducers, one row a line.
// `class` declares the reducer in its row, so this file needs nothing else of it.
// In a function or an unnamed namespace, `class` would declare another class.
// clang-format off
constexpr ReducerEntry (*rows[])() = {
    reducer_entry<class CategoryCounts>,
};
// clang-format on

const std::vector<ReducerEntry>& reducer_table() {
  static const std::vector<ReducerEntry> entries = [] {
    std::vector<ReducerEntry> made;
    for (const auto row : rows) made.push_back(row());
    return made;
  }();
  return entries;
}

const ReducerEntry* find_reducer(std::string_view name) {
  for (const auto& entry : reducer_table()) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

CommittedLines::CommittedLines(std::string out_folder, const FileSystem& files)
    : out_folder_(std::move(out_folder)), files_(files) {}

void CommittedLines::for_each(const std::function<void(const nlohmann::json& line)>& take) const {
  for_each_line(
      out_folder_,
      [&](const SegmentLine& line) {
        nlohmann::json json;
        try {
          json = nlohmann::json::parse(line.json);
        } catch (const nlohmann::json::exception& error) {
          throw std::runtime_error("the line of item " + std::to_string(line.item_id) + " in segment " +
                                   std::to_string(line.segment) + " cannot be read: " + error.what());
        }
        take(json);
        return true;
      },
      files_);
}

ReducerOutput run_reducer(const ReducerEntry& reducer, const std::string& out_folder, const FileSystem& files) {
  const std::string folder = out_folder + "/reduced";
  make_folder(folder, files);
  // Finished segments never change, so no lock of the output is needed. Only reducers take turns.
  const FolderLock lock(folder);
  Reduced reduced = reducer.reduce(CommittedLines(out_folder, files));
  write_durably(folder, reducer.name + reducer.extension, reduced.content, files);
  return {reducer.name, "reduced/" + reducer.name + reducer.extension, std::move(reduced.summary)};
}

}  // namespace millrace
