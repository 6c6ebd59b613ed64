#include "run/predictions.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "pipeline/what_if.hpp"
#include "run/recording.hpp"
#include "stages/decode.hpp"

namespace millrace {
namespace {

// The stage after which the field is freed. Fields that no stage of the chain frees stay until the commit.
std::string last_reader(const Chain& chain, const FieldBase& field) {
  for (const ChainLink& link : chain.links()) {
    if (std::ranges::find(link.frees, &field) != link.frees.end()) return link.info.name;
  }
  return "commit";
}

std::int64_t batches_of(const Snapshot& window, const std::string& stage) {
  for (const ResourceReading& resource : window.resources) {
    if (!resource.in_turn) continue;
    const auto part = std::ranges::find(resource.parts, stage, &Reading::name);
    if (part != resource.parts.end()) return part->items;
  }
  return 0;
}

// The options that limit the rows of a model call, by the calls of the run. Without those that no call has used.
std::vector<RowLimit> row_limits(const Chain& chain, const Packages& packages, const Snapshot& window,
                                 const CallCosts& times) {
  std::vector<RowLimit> all;
  for (const ChainLink* link : chain.of(Section::lane)) {
    const std::string& stage = link->info.name;
    const auto batches = static_cast<double>(batches_of(window, stage));
    for (const ModelUse& use : link->info.models) {
      for (const ModelUse::Calls& calls : use.calls) {
        const CallCosts::ByRows by_rows = times.of(stage, calls.method);
        const auto package = packages.find(use.folder);  // views may have packages of their own instead
        if (calls.option.empty() || package == packages.end() || by_rows.empty() || batches < 1) continue;
        RowLimit limit{.option = stage + "." + calls.option,
                       .stage = stage,
                       .value = calls.rows,
                       .most = package->second->method(calls.method).maximum,
                       .call_s = fixed_seconds(by_rows)};
        for (const auto& [rows, known] : by_rows) {
          limit.calls += static_cast<double>(known.calls);
          limit.rows += rows * static_cast<double>(known.calls);
        }
        limit.calls /= batches;
        limit.rows /= batches;
        all.push_back(std::move(limit));
      }
    }
  }
  return all;
}

}  // namespace

void predict_changes(RunReport& report, const RunFolder& folder, const ResolvedConfig& resolved,
                     const JobRequest& request, const CallCosts& times) {
  // A short run says as little about changes as about the bottleneck.
  if (report.verdict.kind == Verdict::Kind::too_short || !report.verdict.thin.empty()) return;
  const Config& config = request.config;
  const bool in_memory = config.input.source == "memory";  // its pixels do not count against gate.memory
  const auto recording =
      recording_of(report.window, {.batch = report.batch_size,
                                   .team = report.team,
                                   .worker_nice = resolved.graph.worker_nice,
                                   .memory_bytes = in_memory ? 0 : resolved.graph.byte_budget,
                                   .decoded_bytes = report.stage_bytes.at(Decode::name),
                                   .pixels_until = last_reader(config.chain, pixels),
                                   .row_limits = row_limits(config.chain, request.packages, report.window, times)});
  if (!recording) return;
  folder.write_recording(to_json(*recording));
  try {
    report.what_if = WhatIf(*recording).table();
    if (const auto earlier = newest_recording(report.output_folder, report.run)) {
      report.prediction = check_prediction(earlier->second, *recording);
      report.predicted_by = earlier->first;
    }
  } catch (const std::exception& error) {  // the results are complete, so the run must not fail
    report.notes.push_back("changes could not be predicted: " + std::string(error.what()));
  }
}

}  // namespace millrace
