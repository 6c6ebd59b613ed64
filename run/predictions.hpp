#pragma once

#include "io/results/run_folder.hpp"
#include "run/job.hpp"
#include "run/report.hpp"
#include "stages/call_costs.hpp"

namespace millrace {

/// Writes the recording of a run, and puts what changes would bring into the report. Nothing for a short run.
/// The report has the window of the run, and its verdict.
void predict_changes(RunReport& report, const RunFolder& folder, const ResolvedConfig& resolved,
                     const JobRequest& request, const CallCosts& times);

}  // namespace millrace
