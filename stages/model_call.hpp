#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu/tensor.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// What became of one row of a model call.
struct RowOutcome {
  std::shared_ptr<const std::vector<Tensor>> outputs;  ///< null: the call fails for this row alone, see error
  int row = 0;                                         ///< the row's index in outputs
  bool split = false;                                  ///< done in a smaller shape than asked for, after out-of-memory
  std::string error;
};

/// Inputs of a call for these rows of the chunk, in order; a row marked in `blank` is filled with zeros.
using MakeInputs = std::function<std::vector<Tensor>(std::span<const int> rows, const std::vector<bool>& blank)>;
using ModelCall = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

/// Calls a model for rows 0..count-1 at once and keeps one bad row from costing the others.
/// Out of memory: the rows are halved until they fit. Any other ModelError: the culprit is found by bisection
/// (log2(count) calls) and the call is made once more in its original shape with that row blank, so that the others'
/// results are exactly those of the plan.
std::vector<RowOutcome> call_rows(int count, const MakeInputs& make, const ModelCall& call, StageCounters& counters);

}  // namespace millrace
