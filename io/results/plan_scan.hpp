#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_set>
#include <vector>

#include "io/input/source.hpp"
#include "io/results/plan_files.hpp"

namespace millrace {

/// The work of a plan's scan thread: items from the source, cut into segments, written to disk.
class PlanScan {
 public:
  struct Options {
    nlohmann::json plan;  ///< content of plan.json
    std::string plan_hash;
    std::vector<PlanSegmentHeader> headers;  ///< segments on disk
    std::string last_path;                   ///< of the last item on disk; empty where there is none
    int pass = 0;  ///< 0: the first scan goes on where it ended; above: takes whatever is not planned
    int segment_items = 2048;
    bool allow_empty = false;
    std::optional<PlanEnd> whole;  ///< the first scan has ended: an empty list changes nothing, a longer one goes on
  };

  PlanScan(PlanFiles& files, Source& source, Options options);

  /// Scans to the end and writes end.json, or returns nothing when stopped before. `closed` gets each new segment after
  /// it is on disk and says whether to go on.
  using Closed = std::function<bool(PlannedSegment, const PlanSegmentHeader&)>;
  std::optional<PlanEnd> run(const std::stop_token& stop, const Closed& closed);

 private:
  bool is_planned(const Item& item, const SourcePosition& position);
  bool passed_over(const Item& item, const SourcePosition& position);
  void check_list(const std::string& path, bool at_end);
  bool close(const Closed& closed);
  void collect_planned_paths();
  PlanEnd finish();

  PlanFiles& files_;
  Source& source_;
  Options options_;
  std::vector<std::string> hashes_;     // of all segments so far
  std::int64_t items_ = 0, bytes_ = 0;  // in closed segments
  bool caught_up_ = true;               // the source is behind the last item on disk
  SourcePosition position_;             // of the item last seen
  std::uint64_t chain_ = 0;
  std::vector<std::uint64_t> known_;  // sorted hashes of the paths on disk; with pass > 0
  std::unordered_set<std::uint64_t> added_;
  std::vector<Item> open_;  // the segment being filled
  SourcePosition open_last_;
  std::uint64_t open_chain_ = 0;
};

}  // namespace millrace
