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

  /// All lines of all done segments in plan order, parsed; an item with revisions has the line of its highest. May be
  /// called again for another pass. Throws ResultsDamaged, std::runtime_error for a line that is no JSON, StorageError.
  void for_each(const std::function<void(const nlohmann::json& line)>& take) const;

 private:
  const std::string out_folder_;
  const FileSystem& files_;
};

/// What a reducer makes of them.
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

/// The row of reducer R, which has `static ReducerEntry entry()`. Defined in io/reducers/reducer_entry.hpp and
/// instantiated in the reducer's own source, so that the table needs no header of it.
template <class R>
ReducerEntry reducer_entry();

/// Every reducer the program knows.
const std::vector<ReducerEntry>& reducer_table();

/// The row of that name, or null.
const ReducerEntry* find_reducer(std::string_view name);

/// What came of one reducer.
struct ReducerOutput {
  std::string name;
  std::string file;  ///< below the output folder: "reduced/categories.json"
  std::vector<std::string> summary;
};

/// Runs a reducer over an output folder and replaces `reduced/<name><extension>` there: aside, synced, renamed. Takes
/// no lock of the output, so that it may run beside a run; of those who reduce, one at a time holds the lock of
/// `reduced/`. Throws as CommittedLines::for_each() and FolderLock do.
ReducerOutput run_reducer(const ReducerEntry& reducer, const std::string& out_folder,
                          const FileSystem& files = real_files);

}  // namespace millrace
