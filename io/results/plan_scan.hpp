#pragma once

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/json.hpp"
#include "io/input/source.hpp"
#include "io/results/plan_files.hpp"

namespace millrace {

/// The work of a plan's scan thread: takes items from the source, cuts them into segments, writes these to disk.
class PlanScan {
 public:
  struct Options {
    nlohmann::json plan;  ///< content of plan.json
    std::string plan_hash;
    std::vector<PlanSegmentHeader> headers;  ///< segments on disk
    std::string last_path;                   ///< of the last item on disk; empty if there is none
    int pass = 0;  ///< 0: the first scan, continued where it ended; above 0: takes every item that is not planned
    int segment_items = 2048;
    bool allow_empty = false;
    /// Set if the first scan has ended. Then an empty list changes nothing, and a longer one adds items.
    std::optional<PlanEnd> finished;
  };

  PlanScan(PlanFiles& files, Source& source, Options options);

  /// Scans to the end and writes end.json. Returns nothing if it was stopped before.
  /// `closed` gets each new segment after it is on disk, and returns false to stop the scan.
  using Closed = std::function<bool(PlannedSegment, const PlanSegmentHeader&)>;
  std::optional<PlanEnd> run(const std::stop_token& stop, const Closed& closed);

 private:
  bool is_planned(const Item& item, const SourcePosition& position);
  bool passed_over(const Item& item, const SourcePosition& position);
  void check_list(bool at_end);
  bool close(const Closed& closed);
  void collect_planned_paths();
  PlanEnd finish();

  PlanFiles& files_;
  Source& source_;
  Options options_;
  std::vector<std::string> hashes_;     // of all segments so far
  std::int64_t items_ = 0, bytes_ = 0;  // in closed segments
  bool caught_up_ = true;               // the source has passed the last item on disk
  SourcePosition position_;             // of the last item seen
  std::uint64_t chain_ = 0;
  std::vector<std::uint64_t> known_;  // sorted hashes of the paths on disk; only with pass > 0
  std::unordered_set<std::uint64_t> added_;
  std::vector<Item> open_;  // the segment being filled
  SourcePosition open_last_;
  std::uint64_t open_chain_ = 0;
};

}  // namespace millrace
