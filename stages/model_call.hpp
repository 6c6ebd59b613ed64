#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/tensor.hpp"
#include "stages/stage.hpp"

namespace millrace {

class StageModel;

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

/// A row of a call. A blank one is filled with zeros, so that the shape of a call follows from the plan alone.
struct CallRow {
  int row = 0;  ///< index in BatchRows::owners
  bool blank = false;
};

/// A row that a call gave.
struct TakenRow {
  int row = 0;  ///< index in BatchRows::owners
  std::shared_ptr<const std::vector<Tensor>> outputs;
  int at = 0;  ///< the row's index in outputs
};

/// Rows of a batch that go through one method of a model: pictures, boxes, crops or windows.
struct BatchRows {
  std::string stage;  ///< in the recipe, for what is said of pictures that fail
  const StageModel& model;
  std::string method;
  const CounterInfo& calls;               ///< counts the calls
  const std::vector<int>& owners;         ///< of each row, the slot of its picture; rows of a picture stand together
  bool pack = true;                       ///< no: a call holds rows of one picture only
  std::function<bool(int row)> wanted{};  ///< whether take() is to be called; empty: always
  bool call_unwanted = false;             ///< calls of which no row is wanted are made too

  /// The inputs of a call: of these rows in order, then zeros up to `count` rows. Empty: the rows are pictures, and the
  /// input is the one that `preprocess` made.
  std::function<std::vector<Tensor>(std::span<const CallRow> rows, int count)> make{};
  /// Is handed what calls gave, before the next ones are made: wanted rows in order, without those of failed pictures.
  std::function<void(std::span<const TakenRow> rows)> take;
};

/// BatchRows::owners where each picture of the batch is a row.
std::vector<int> every_slot(const Batch& batch);

/// Calls the method with as many rows at once as options, package and memory allow, each call by way of the function
/// above. A picture to blame for a failed call fails, with all its rows. When this returns, every picture that has not
/// failed is complete: all its rows were taken.
void call_rows(Batch& batch, const StageContext& context, const BatchRows& rows);

/// What calls give, brought to the host's memory: `width` numbers of float32 a row. To be read after the device's wait.
class HostRows {
 public:
  HostRows(Device& device, std::size_t rows, int width);
  /// For BatchRows::take: keeps the first output.
  void take(std::span<const TakenRow> rows);
  /// Of a row that was taken.
  std::span<const float> row(std::size_t index) const;

 private:
  Device& device_;
  const std::size_t width_;
  std::vector<const float*> rows_;
  std::vector<std::shared_ptr<const void>> kept_;  // what the rows point into
};

}  // namespace millrace
