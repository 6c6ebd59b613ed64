#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.hpp"
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
  SourcePosition last;       ///< where the last item was found
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

/// Writes, finds and checks the files of a plan. It neither scans nor waits.
class PlanFiles {
 public:
  explicit PlanFiles(const std::string& out_folder, const FileSystem& files = real_files);

  /// plan.json without its hash; nothing if the file does not exist.
  std::optional<nlohmann::json> read_plan() const;
  /// Headers of all segments, in order, without gaps. Throws PlanDamaged if one does not belong to `plan_hash`.
  std::vector<PlanSegmentHeader> read_headers(const std::string& plan_hash) const;
  /// end.json; nothing if the file does not exist.
  /// Throws PlanDamaged if it does not agree with the headers of the segments.
  std::optional<PlanEnd> read_end(const std::string& plan_hash, const std::vector<PlanSegmentHeader>& headers) const;
  /// Throws PlanDamaged for a changed segment, and for an item whose view is not in `views`.
  PlannedSegment read_segment(std::int64_t index, const std::string& plan_hash,
                              const std::vector<std::string>& views) const;

  /// After each of these calls, its file survives a power cut.
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

/// The hash that names a plan: SHA-256 of the content of plan.json.
std::string plan_hash(const nlohmann::json& plan);

/// The folder from which relative paths of items start; nothing if the plan does not tell. `plan` is read_plan().
std::optional<std::string> picture_root(const nlohmann::json& plan);

/// The line of one item, with its newline.
std::string item_line(const Item& item, const std::vector<std::string>& views);

/// One text for each leaf that differs, by key: "detect.conf: 0.25 in the plan, 0.3 now".
std::vector<std::string> json_differences(const nlohmann::json& planned, const nlohmann::json& now);

}  // namespace millrace
