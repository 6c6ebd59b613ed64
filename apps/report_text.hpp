#pragma once

#include <string>

#include "run/report.hpp"

namespace millrace {

/// The text that a run prints to stdout at its end: counts, the table of stages, the bottleneck, and the files written.
/// Sentences wrap at `columns`; the rows of the table do not. `colour` adds escape sequences for bold.
std::string to_text(const RunReport& report, int columns, bool colour);

}  // namespace millrace
