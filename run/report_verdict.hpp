#pragma once

#include "run/report.hpp"

namespace millrace {

/// Fills report.verdict for the window from `begun` to `end`, in the words of the user's options.
/// It states the gains that report.what_if predicts. So call it again when they are known.
void fill_verdict(RunReport& report, Snapshot begun, Snapshot end);

}  // namespace millrace
