#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// What became of one row of a model call.
struct RowOutcome {
  std::shared_ptr<const std::vector<Tensor>> outputs;  ///< null: the call fails for this row alone, see error
  int row = 0;                                         ///< the row's index in outputs
  bool split = false;                                  ///< done in a smaller shape than asked for, after out-of-memory
  std::string error;
};

/// Inputs of a call for these rows of the chunk, in order; what a row marked in `blank` brings is filled with zeros.
using MakeInputs = std::function<std::vector<Tensor>(std::span<const int> rows, const std::vector<bool>& blank)>;
using ModelCall = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

inline constexpr CounterInfo split_calls{"split_calls"};    ///< out of memory, done again in halves
inline constexpr CounterInfo bisect_calls{"bisect_calls"};  ///< extra calls to find the picture that makes a call fail

/// The most rows that memory allows a call, as far as is known by then.
using MostRows = std::function<int()>;

/// Calls a model once for all rows and keeps a bad picture from costing the others. pictures[row] says whose a row is;
/// rows of a picture stand together, and one that fails takes the others of its picture with it.
/// Out of memory, of the call or of its inputs: the rows are halved until they fit, and calls of more rows than
/// `most()` are halved without being tried; what one row or a search throws passes through, since what else the
/// batch holds is in its way. Any other ModelError: the picture to blame is found by bisection, at most log2(pictures)
/// + 1 calls, and the call is made once more in its original shape with that picture blank, so that the others' results
/// are exactly those of the plan. Where no picture fails alone, the call is repeated, and when it fails again done in
/// halves.
std::vector<RowOutcome> call_rows(std::span<const int> pictures, const MakeInputs& make, const ModelCall& call,
                                  const MostRows& most, Counters& counters);

}  // namespace millrace
