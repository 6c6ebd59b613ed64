#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "io/results/output_contents.hpp"
#include "io/results/plan_files.hpp"

namespace millrace {

/// The progress of an output folder.
struct OutputState {
  std::size_t segments = 0;  ///< of the plan
  std::int64_t planned = 0;
  std::optional<PlanEnd> end;  ///< set when the scan has ended
  OutputContents contents;

  std::int64_t done() const { return contents.counts.items + contents.journaled_items; }
  std::int64_t left() const { return planned - done(); }
};

/// Reads the progress, without a lock and without a change. Returns nothing if the folder has no plan.
/// Throws PlanDamaged, OutputMismatchError or StorageError.
std::optional<OutputState> read_output(const std::string& folder);

}  // namespace millrace
