#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "io/results/books.hpp"
#include "io/results/plan_files.hpp"

namespace millrace {

/// How far the work of an output folder is. Reading it takes no lock and changes nothing.
struct OutputState {
  std::size_t segments = 0;  ///< of the plan
  std::int64_t planned = 0;
  std::optional<PlanEnd> end;  ///< nothing while the scan has not ended
  Books books;

  std::int64_t done() const { return books.counts.items + books.journaled_items; }
  std::int64_t left() const { return planned - done(); }
};

/// Nothing where the folder has no plan. Throws PlanDamaged, OutputMismatchError or StorageError.
std::optional<OutputState> read_output(const std::string& folder);

}  // namespace millrace
