#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/files/files.hpp"
#include "io/input/source.hpp"
#include "io/results/plan.hpp"

namespace millrace {

/// The first line of a segment of the plan.
struct PlanSegmentHeader {
  std::int64_t index = 0;
  std::int64_t first_id = 0;
  std::int64_t items = 0;
  std::int64_t bytes = 0;    ///< of the items' files
  int pass = 0;              ///< 0: the first scan, then one more for each --add-new
  SourcePosition last;       ///< where the last item was met
  std::string chain;         ///< hash over the paths taken from that input so far
  std::string items_sha256;  ///< of the item lines
};

/// The content of end.json.
struct PlanEnd {
  std::int64_t items = 0;
  std::int64_t bytes = 0;
  std::int64_t segments = 0;
  int passes = 1;                                   ///< one more for each --add-new
  nlohmann::json lists = nlohmann::json::object();  ///< Source::list_hashes() when it was written
  ScanCounts counts;
};

/// The files of a plan: how they are written, found and checked. Nothing here scans or waits.
class PlanFiles {
 public:
  explicit PlanFiles(const std::string& out_folder, const FileSystem& files = real_files);

  /// plan.json without its hash; nothing where there is none.
  std::optional<nlohmann::json> read_plan() const;
  /// Headers of all segments, in order, without gaps. `plan_hash` is what they must belong to.
  std::vector<PlanSegmentHeader> read_headers(const std::string& plan_hash) const;
  /// end.json; throws PlanDamaged where it does not agree with the segments' headers.
  std::optional<PlanEnd> read_end(const std::string& plan_hash, const std::vector<PlanSegmentHeader>& headers) const;
  /// Throws PlanDamaged for a name that is not in `views`.
  PlannedSegment read_segment(std::int64_t index, const std::string& plan_hash,
                              const std::vector<std::string>& views) const;

  /// Each survives a power cut once it has returned.
  void write_plan(const nlohmann::json& plan);
  void write_segment(const PlanSegmentHeader& header, const std::string& item_lines, const std::string& plan_hash);
  void write_end(const PlanEnd& end, const std::string& plan_hash, const std::vector<std::string>& segment_hashes);

  const std::string& folder() const { return folder_; }

 private:
  [[noreturn]] void damaged(const std::string& name, const std::string& why) const;
  nlohmann::json unseal(const std::string& text, const std::string& name) const;
  PlanSegmentHeader parse_header(const std::string& line, std::int64_t index, const std::string& plan_hash) const;
  std::string read(const std::string& name) const;

  const FileSystem& files_;
  std::string out_folder_, folder_;
};

/// "000123.jsonl"
std::string plan_segment_name(std::int64_t index);

/// The hash that names a plan: of plan.json's content.
std::string plan_hash(const nlohmann::json& plan);

/// One item as a line with its newline.
std::string item_line(const Item& item, const std::vector<std::string>& views);

/// "detect.conf: 0.25 in the plan, 0.3 now", one for each leaf that differs, by key.
std::vector<std::string> json_differences(const nlohmann::json& planned, const nlohmann::json& now);

}  // namespace millrace
