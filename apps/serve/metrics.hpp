#pragma once

#include <string>

namespace millrace {

struct RunReport;

inline constexpr const char* metrics_type = "text/plain; version=0.0.4; charset=utf-8";

/// The figures of a run for Prometheus, in its text format 0.0.4; docs/formats_runs.md lists them. What is not known is
/// left out. `state` is that of /status.json.
std::string metrics_of(const RunReport& report, const std::string& state);

/// The same before there is a report: only the state.
std::string metrics_of_start(const std::string& state);

}  // namespace millrace
