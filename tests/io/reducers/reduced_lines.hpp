#pragma once

#include <string>
#include <vector>

#include "base/json.hpp"
#include "io/reducers/reducer.hpp"
#include "io/results/segments.hpp"
#include "tests/io/files/temporary_folder.hpp"

namespace millrace {

/// Commits a segment of these lines, which get ids from `first_id`.
inline void commit_lines(const std::string& out, std::int64_t segment, std::int64_t first_id,
                         std::vector<nlohmann::json> lines) {
  SegmentStore store(out, "plan");
  std::vector<std::int64_t> ids;
  std::vector<int> batch;
  std::vector<Line> given;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    ids.push_back(first_id + static_cast<std::int64_t>(i));
    batch.push_back(static_cast<int>(i));
    const std::string rest = lines[i].dump();
    given.push_back({ids.back(), "{\"id\": " + std::to_string(ids.back()) + ", " + rest.substr(1)});
  }
  store.open_segment(segment, ids, {batch});
  store.append(segment, 0, given);
}

/// The result of a reducer of the table over these lines.
inline Reduced reduce_lines(const std::string& reducer, const std::vector<nlohmann::json>& lines) {
  const TemporaryFolder folder;
  commit_lines(folder.path(), 0, 0, lines);
  return find_reducer(reducer)->reduce(CommittedLines(folder.path()));
}

}  // namespace millrace
