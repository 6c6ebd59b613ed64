#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "io/files/files.hpp"

namespace millrace {

/// The committed lines of an output folder, as a reducer sees them.
class CommittedLines {
 public:
  explicit CommittedLines(std::string out_folder, const FileSystem& files = real_files);

  /// Calls `take` with each line of all done segments, parsed, in plan order.
  /// An item with revisions has the line of its highest revision.
  /// May be called again for another pass.
  /// Throws ResultsDamaged, StorageError, and std::runtime_error for a line that is no JSON.
  void for_each(const std::function<void(const nlohmann::json& line)>& take) const;

 private:
  const std::string out_folder_;
  const FileSystem& files_;
};

/// The result of a reducer.
struct Reduced {
  std::string content;               ///< of its file
  std::vector<std::string> summary;  ///< sentences for the report and the terminal
};

/// A row of the table in reducer_table.cpp. `reduce` is a pure function: the same lines give the same bytes.
struct ReducerEntry {
  std::string name;
  std::string help;
  std::string extension;  ///< of its file: ".json"
  Reduced (*reduce)(const CommittedLines& lines);
};

/// The row of reducer R, which has `static ReducerEntry entry()`.
/// io/reducers/reducer_entry.hpp defines it, and the reducer's own source instantiates it.
/// So the table needs no header of the reducer.
template <class R>
ReducerEntry reducer_entry();

/// Every reducer that the program knows.
const std::vector<ReducerEntry>& reducer_table();

/// The row with that name, or null.
const ReducerEntry* find_reducer(std::string_view name);

/// What one call of run_reducer() wrote.
struct ReducerOutput {
  std::string name;
  std::string file;  ///< below the output folder: "reduced/categories.json"
  std::vector<std::string> summary;
};

/// Runs a reducer over an output folder and replaces `reduced/<name><extension>` there durably.
/// It takes no lock of the output folder, so it works during a run.
/// The lock of `reduced/` admits one reducer at a time.
/// Throws as CommittedLines::for_each() and FolderLock.
ReducerOutput run_reducer(const ReducerEntry& reducer, const std::string& out_folder,
                          const FileSystem& files = real_files);

}  // namespace millrace
