#pragma once

#include <string>

#include "run/report.hpp"

namespace millrace {

/// The table of stages and the sentence that names the bottleneck, for a terminal of `columns` columns.
std::string to_text(const RunReport& report, int columns, bool colour);

}  // namespace millrace
