#include "stages/model_call.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include "models/call_limits.hpp"

namespace millrace {
namespace {

class Calls {
 public:
  Calls(std::span<const int> pictures, const MakeInputs& make, const ModelCall& call, const MostRows& most,
        Counters& counters)
      : pictures_(pictures),
        make_(make),
        call_(call),
        most_(most),
        counters_(counters),
        blank_(pictures.size()),
        outcomes_(pictures.size()) {}

  std::vector<RowOutcome> run() {
    std::vector<int> rows(blank_.size());
    std::iota(rows.begin(), rows.end(), 0);
    run(rows, false);
    return std::move(outcomes_);
  }

 private:
  int picture_of(int row) const { return pictures_[static_cast<std::size_t>(row)]; }
  bool is_blank(int row) const { return blank_[static_cast<std::size_t>(row)]; }

  void run(const std::vector<int>& rows, bool split) {
    bool repeated = false;
    while (!std::all_of(rows.begin(), rows.end(), [&](int row) { return is_blank(row); })) {
      if (rows.size() > static_cast<std::size_t>(most_())) return run_halves(rows);
      try {
        keep(rows, call_(make_(rows, blank_)), split);
        return;
      } catch (const OutOfMemoryError&) {
        if (rows.size() == 1) throw;
        return run_halves(rows);
      } catch (const std::bad_alloc&) {
        if (rows.size() == 1) throw;
        return run_halves(rows);
      } catch (const ModelError& error) {
        const std::optional<int> culprit = find_culprit(rows);
        if (culprit) {
          blame(*culprit, error.what());
        } else if (std::exchange(repeated, true)) {
          return run_halves(rows);
        }
      }
    }
  }

  void run_halves(const std::vector<int>& rows) {
    ++counters_[split_calls];
    const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2);
    run({rows.begin(), middle}, true);
    run({middle, rows.end()}, true);
  }

  void keep(const std::vector<int>& rows, std::vector<Tensor> result, bool split) {
    const auto outputs = std::make_shared<const std::vector<Tensor>>(std::move(result));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (is_blank(rows[i])) continue;
      outcomes_[static_cast<std::size_t>(rows[i])] = {outputs, static_cast<int>(i), split, {}};
    }
  }

  void blame(int picture, const std::string& error) {
    for (std::size_t row = 0; row < blank_.size(); ++row) {
      if (pictures_[row] != picture) continue;
      blank_[row] = true;
      outcomes_[row] = {nullptr, 0, false, error};
    }
  }

  // The picture whose rows fail without the others'. Supposes that there is one; nothing where that proves wrong.
  std::optional<int> find_culprit(std::vector<int> rows) {
    std::erase_if(rows, [&](int row) { return is_blank(row); });
    std::vector<int> suspects;
    for (const int row : rows) {
      if (suspects.empty() || suspects.back() != picture_of(row)) suspects.push_back(picture_of(row));
    }
    const auto fail = [&](std::span<const int> these) {
      std::vector<int> taken;
      std::copy_if(rows.begin(), rows.end(), std::back_inserter(taken),
                   [&](int row) { return std::find(these.begin(), these.end(), picture_of(row)) != these.end(); });
      return fails(taken);
    };
    std::span<const int> left = suspects;
    bool seen_failing = left.size() == 1;
    while (left.size() > 1) {
      const auto first = left.first(left.size() / 2);
      const bool failed = fail(first);
      seen_failing = seen_failing || failed;
      left = failed ? first : left.subspan(first.size());
    }
    // Every call of the search went well: is it really the last one, or did the failure come from elsewhere?
    if (!seen_failing && !fail(left)) return std::nullopt;
    return left.front();
  }

  bool fails(const std::vector<int>& rows) {
    ++counters_[bisect_calls];
    try {
      call_(make_(rows, blank_));
      return false;
    } catch (const OutOfMemoryError&) {
      throw;  // nobody's fault
    } catch (const ModelError&) {
      return true;
    }
  }

  const std::span<const int> pictures_;
  const MakeInputs& make_;
  const ModelCall& call_;
  const MostRows& most_;
  Counters& counters_;
  std::vector<bool> blank_;
  std::vector<RowOutcome> outcomes_;
};

}  // namespace

std::vector<RowOutcome> call_rows(std::span<const int> pictures, const MakeInputs& make, const ModelCall& call,
                                  const MostRows& most, Counters& counters) {
  return Calls(pictures, make, call, most, counters).run();
}

}  // namespace millrace
