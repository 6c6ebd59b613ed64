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

/// The result of one row of a model call.
struct RowOutcome {
  std::shared_ptr<const std::vector<Tensor>> outputs;  ///< null: the row's picture makes the call fail, see `error`
  int row = 0;                                         ///< index of the row in `outputs`
  bool split = false;                                  ///< its call had fewer rows than asked for, after a split
  std::string error;
};

/// Makes the inputs of a call for these rows, in order. A row that is marked in `blank` becomes zeros.
/// `rows` has indices into `blank`. `apart`: a call that also had other rows has failed, and not for lack of memory.
using MakeInputs =
    std::function<std::vector<Tensor>(std::span<const int> rows, const std::vector<bool>& blank, bool apart)>;
using ModelCall = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

inline constexpr CounterInfo split_calls{"split_calls"};    ///< calls that were split into halves
inline constexpr CounterInfo bisect_calls{"bisect_calls"};  ///< extra calls to find the picture that makes a call fail

/// The maximum rows of a call that memory allows, as far as known when it is called.
using MaxRows = std::function<int()>;

/// Calls a model once for all rows, so that a bad picture does not cost the others their results.
/// `pictures[row]` is the picture of a row. Rows of one picture must be adjacent. If one fails, all of them fail.
///
/// If memory runs out, in the call or while `make` runs:
/// - The rows are split into halves until they fit.
/// - Calls of more rows than `most()` are split without a try.
/// - If memory runs out for a single row, or during a bisection, the error passes through.
///   Then other data of the batch takes the memory, and the caller must free it.
///
/// After any other ModelError:
/// - Bisection finds the picture to blame, with at most log2(pictures) + 1 calls.
/// - The call is repeated in its original shape with that picture blank, so the others get exactly the planned results.
/// - If no picture fails alone, the call is repeated as it was. If it fails again, it is split into halves.
std::vector<RowOutcome> call_rows(std::span<const int> pictures, const MakeInputs& make, const ModelCall& call,
                                  const MaxRows& max_rows, Counters& counters);

/// A row of a call. A blank row is filled with zeros, so that the shape of a call follows from the plan alone.
struct CallRow {
  int row = 0;  ///< index in BatchRows::owners
  bool blank = false;
};

/// The result of a row.
struct TakenRow {
  int row = 0;  ///< index in BatchRows::owners
  std::shared_ptr<const std::vector<Tensor>> outputs;
  int at = 0;  ///< index of the row in `outputs`
};

/// Rows of a batch that go through one method of a model: pictures, boxes, crops or windows.
struct BatchRows {
  std::string stage;  ///< name in the recipe, for the failures of pictures
  const StageModel& model;
  std::string method;
  const CounterInfo& calls;               ///< counts the calls
  const std::vector<int>& owners;         ///< slot of each row's picture; rows of one picture must be adjacent
  bool pack = true;                       ///< false: a call contains rows of one picture only
  std::function<bool(int row)> wanted{};  ///< whether the picture needs the row; empty: all rows
  bool take_unwanted = false;             ///< also calls the model for other rows, and takes them

  /// Makes the inputs of a call: these rows in order, then zeros up to `count` rows. `apart` is that of MakeInputs.
  /// Empty: the rows are pictures, and their inputs are those that `preprocess` made.
  std::function<std::vector<Tensor>(std::span<const CallRow> rows, int count, bool apart)> make{};
  /// Gets the results of a call before the next call is made: rows in order, without those of failed pictures.
  std::function<void(std::span<const TakenRow> rows)> take;
};

/// BatchRows::owners if each picture of the batch is one row.
std::vector<int> every_slot(const Batch& batch);

/// Calls the method with the maximum rows that options, package and memory allow.
/// Each call goes through call_rows() above, which handles its errors.
/// A picture that makes a call fail is marked as failed (model_failed).
/// Afterwards every picture that has not failed is complete: `take` got all its wanted rows.
void call_rows(Batch& batch, const StageContext& context, const BatchRows& rows);

/// Results of calls in host memory: `width` float32 numbers for each row. Valid after the device's next wait().
class HostRows {
 public:
  HostRows(Device& device, std::size_t rows, int width);
  /// For BatchRows::take. Uses the first output of each call.
  void take(std::span<const TakenRow> rows);
  /// The numbers of a row that take() got.
  std::span<const float> row(std::size_t index) const;

 private:
  Device& device_;
  const std::size_t width_;
  std::vector<const float*> rows_;
  std::vector<std::shared_ptr<const void>> kept_;  // owners of the memory that rows_ points to
};

/// Calls a model that has one method and returns some numbers for a picture.
/// Calls it for every picture of the batch that has not failed, with the input that `preprocess` made.
/// Row i of the result belongs to the picture in slot i. The row of a failed picture is not valid.
/// `stage` is the name in the recipe, for failures. Waits for the device once.
HostRows call_pictures(Batch& batch, const StageContext& context, const StageModel& model, const std::string& stage,
                       const CounterInfo& calls);

}  // namespace millrace
