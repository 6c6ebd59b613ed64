#pragma once

#include <cstdint>
#include <string>

#include "base/trace_recorder.hpp"

namespace millrace {

/// What the trace of an attempt says about it. Times are those of the recorded events.
struct TraceFacts {
  std::string run, started, tool;           ///< as in report.json and run.json
  std::int64_t zero_ns = 0;                 ///< the time that the trace calls 0
  std::int64_t begun_ns = 0, ended_ns = 0;  ///< the window of the report; equal if there is none
};

/// Throws UsageError unless `file` is a name for a trace: it ends in .json, and is no folder, device or pipe.
void check_trace_name(const std::string& file);

/// Throws StorageError if `file` cannot be written.
void check_trace_place(const std::string& file);

/// Writes the trace in the JSON format of Chrome, which Perfetto reads; docs/tracing.md describes it.
/// Replaces an older file only when the new one is complete. Call it while no thread records.
/// Returns a sentence for the user. Throws StorageError.
std::string write_trace(const std::string& file, const TraceRecorder& recorder, const TraceFacts& facts);

}  // namespace millrace
