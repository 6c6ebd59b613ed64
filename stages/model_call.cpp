#include "stages/model_call.hpp"

#include <algorithm>
#include <numeric>

#include "models/engine.hpp"

namespace millrace {
namespace {

class Calls {
 public:
  Calls(int count, const MakeInputs& make, const ModelCall& call, StageCounters& counters)
      : make_(make),
        call_(call),
        counters_(counters),
        blank_(static_cast<std::size_t>(count)),
        outcomes_(blank_.size()) {}

  std::vector<RowOutcome> run() {
    std::vector<int> rows(blank_.size());
    std::iota(rows.begin(), rows.end(), 0);
    run(rows, false);
    return std::move(outcomes_);
  }

 private:
  void run(const std::vector<int>& rows, bool split) {
    while (std::any_of(rows.begin(), rows.end(), [&](int row) { return !blank_[static_cast<std::size_t>(row)]; })) {
      try {
        keep(rows, call_(make_(rows, blank_)), split);
        return;
      } catch (const OutOfMemoryError& error) {
        if (rows.size() == 1) return mark(rows.front(), error.what());
        ++counters_.split_calls;
        const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2);
        run({rows.begin(), middle}, true);
        run({middle, rows.end()}, true);
        return;
      } catch (const ModelError& error) {
        const int culprit = find_culprit(rows);
        mark(culprit, error.what());
      }
    }
  }

  void keep(const std::vector<int>& rows, std::vector<Tensor> result, bool split) {
    const auto outputs = std::make_shared<const std::vector<Tensor>>(std::move(result));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<std::size_t>(rows[i]);
      if (blank_[row]) continue;
      outcomes_[row].outputs = outputs;
      outcomes_[row].row = static_cast<int>(i);
      outcomes_[row].split = split;
    }
  }

  void mark(int row, const std::string& error) {
    blank_[static_cast<std::size_t>(row)] = true;
    outcomes_[static_cast<std::size_t>(row)].error = error;
  }

  // Assumes that one row is to blame: it is in the first half if that half fails alone, else in the second.
  int find_culprit(std::vector<int> rows) {
    std::erase_if(rows, [&](int row) { return blank_[static_cast<std::size_t>(row)]; });
    while (rows.size() > 1) {
      const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2);
      std::vector<int> first(rows.begin(), middle);
      rows = fails(first) ? std::move(first) : std::vector<int>(middle, rows.end());
    }
    return rows.front();
  }

  bool fails(const std::vector<int>& rows) {
    ++counters_.bisect_calls;
    try {
      call_(make_(rows, blank_));
      return false;
    } catch (const ModelError&) {
      return true;
    }
  }

  const MakeInputs& make_;
  const ModelCall& call_;
  StageCounters& counters_;
  std::vector<bool> blank_;
  std::vector<RowOutcome> outcomes_;
};

}  // namespace

std::vector<RowOutcome> call_rows(int count, const MakeInputs& make, const ModelCall& call, StageCounters& counters) {
  if (count == 0) return {};
  return Calls(count, make, call, counters).run();
}

}  // namespace millrace
