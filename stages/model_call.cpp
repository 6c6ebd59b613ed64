#include "stages/model_call.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include "gpu/device.hpp"
#include "models/call_limits.hpp"
#include "stages/call_costs.hpp"
#include "stages/preprocess.hpp"
#include "stages/stage_models.hpp"

namespace millrace {
namespace {

// One model call of call_rows(), with all its repetitions, halves and searches.
class Calls {
 public:
  Calls(std::span<const int> pictures, const MakeInputs& make, const ModelCall& call, const MaxRows& max_rows,
        Counters& counters)
      : pictures_(pictures),
        make_(make),
        call_(call),
        max_rows_(max_rows),
        counters_(counters),
        blank_(pictures.size()),
        outcomes_(pictures.size()) {}

  std::vector<RowOutcome> run() {
    std::vector<int> rows(blank_.size());
    std::iota(rows.begin(), rows.end(), 0);
    run(rows, {});
    return std::move(outcomes_);
  }

 private:
  /// How the rows of a call were taken from a larger one.
  struct Part {
    bool split = false;
    bool apart = false;  // see MakeInputs
  };

  int picture_of(int row) const { return pictures_[static_cast<std::size_t>(row)]; }
  bool is_blank(int row) const { return blank_[static_cast<std::size_t>(row)]; }

  void run(const std::vector<int>& rows, Part part) {
    bool repeated = false;
    // Each round tries the same rows. A bad picture costs a round and is blank in the next.
    while (!std::all_of(rows.begin(), rows.end(), [&](int row) { return is_blank(row); })) {
      // Asked in every round, because the engine lowers the limit when a call runs out of memory.
      if (rows.size() > static_cast<std::size_t>(max_rows_())) return run_halves(rows, part.apart);
      try {
        keep(rows, call_(make_(rows, blank_, part.apart)), part.split);
        return;
      } catch (const OutOfMemoryError&) {
        // An OutOfMemoryError is a ModelError too, but no picture is to blame for it.
        if (rows.size() == 1) throw;
        return run_halves(rows, part.apart);
      } catch (const std::bad_alloc&) {
        // From make_(), which allocates the inputs.
        if (rows.size() == 1) throw;
        return run_halves(rows, part.apart);
      } catch (const ModelError& error) {
        const std::optional<int> culprit = find_culprit(rows);
        // A first failure without a culprit may not happen again, so the same call gets a second try.
        // A second one can depend on the number of rows, so halves may succeed.
        if (culprit) {
          blame(*culprit, error.what());
        } else if (std::exchange(repeated, true)) {
          return run_halves(rows, true);
        }
      }
    }
  }

  void run_halves(const std::vector<int>& rows, bool apart) {
    ++counters_[split_calls];
    const auto middle = rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 2);
    // `split` marks the lines of these pictures: a call of another size may change the last bits of results.
    run({rows.begin(), middle}, {.split = true, .apart = apart});
    run({middle, rows.end()}, {.split = true, .apart = apart});
  }

  void keep(const std::vector<int>& rows, std::vector<Tensor> result, bool split) {
    const auto outputs = std::make_shared<const std::vector<Tensor>>(std::move(result));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      // blame() has written the outcome of a blank row already.
      if (is_blank(rows[i])) continue;
      outcomes_[static_cast<std::size_t>(rows[i])] = {outputs, static_cast<int>(i), split, {}};
    }
  }

  void blame(int picture, const std::string& error) {
    // Also rows of the picture outside the failed half, so that the picture fails as a whole.
    for (std::size_t row = 0; row < blank_.size(); ++row) {
      if (pictures_[row] != picture) continue;
      blank_[row] = true;
      outcomes_[row] = {nullptr, 0, false, error};
    }
  }

  // The picture whose rows fail on their own. The bisection assumes that one exists; nothing if no picture fails alone.
  std::optional<int> find_culprit(std::vector<int> rows) {
    std::erase_if(rows, [&](int row) { return is_blank(row); });
    std::vector<int> suspects;
    for (const int row : rows) {
      if (suspects.empty() || suspects.back() != picture_of(row)) suspects.push_back(picture_of(row));
    }
    const auto fail = [&](std::span<const int> these) {
      // Other pictures are left out, not blank, so calls of the search get smaller and smaller.
      std::vector<int> taken;
      std::copy_if(rows.begin(), rows.end(), std::back_inserter(taken),
                   [&](int row) { return std::find(these.begin(), these.end(), picture_of(row)) != these.end(); });
      return fails(taken);
    };
    std::span<const int> left = suspects;
    // The call that failed had only this picture, so it needs no other proof.
    bool seen_failing = left.size() == 1;
    while (left.size() > 1) {
      const auto first = left.first(left.size() / 2);
      const bool failed = fail(first);
      seen_failing = seen_failing || failed;
      // If the first half works, the other is not called: a picture that fails alone can only be there.
      left = failed ? first : left.subspan(first.size());
    }
    // If no call of the search failed, the last suspect may be innocent, so it gets a call of its own.
    if (!seen_failing && !fail(left)) return std::nullopt;
    return left.front();
  }

  bool fails(const std::vector<int>& rows) {
    ++counters_[bisect_calls];
    try {
      call_(make_(rows, blank_, true));
      return false;
    } catch (const OutOfMemoryError&) {
      throw;  // no picture is to blame
    } catch (const ModelError&) {
      return true;
    }
  }

  const std::span<const int> pictures_;
  const MakeInputs& make_;
  const ModelCall& call_;
  const MaxRows& max_rows_;
  Counters& counters_;
  std::vector<bool> blank_;
  std::vector<RowOutcome> outcomes_;
};

// The rows of `images` [slots, ...] for the pictures of the call, then zeros up to `count` rows.
// A view of `images` if the rows are adjacent, none is blank and no zeros follow; otherwise a copy.
Tensor gather(Device& device, const Tensor& images, std::span<const CallRow> rows, std::span<const int> owners,
              int count) {
  const auto slot = [&](std::size_t i) { return owners[static_cast<std::size_t>(rows[i].row)]; };
  bool plain = static_cast<std::size_t>(count) == rows.size() &&
               std::ranges::none_of(rows, [](const CallRow& row) { return row.blank; });
  for (std::size_t i = 1; i < rows.size(); ++i) plain = plain && slot(i) == slot(i - 1) + 1;
  Tensor taken = images;
  taken.shape[0] = count;
  if (plain) {
    taken.data = images.row(slot(0)).data;
    return taken;
  }
  taken = device.empty(taken.shape, images.dtype);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    const Tensor target = taken.row(static_cast<std::int64_t>(i));
    if (i >= rows.size() || rows[i].blank) {
      device.zero(target);
    } else {
      device.copy(images.row(slot(i)), target);
    }
  }
  return taken;
}

}  // namespace

std::vector<RowOutcome> call_rows(std::span<const int> pictures, const MakeInputs& make, const ModelCall& call,
                                  const MaxRows& max_rows, Counters& counters) {
  return Calls(pictures, make, call, max_rows, counters).run();
}

std::vector<int> every_slot(const Batch& batch) {
  std::vector<int> slots(batch.frames.size());
  std::iota(slots.begin(), slots.end(), 0);
  return slots;
}

void call_rows(Batch& batch, const StageContext& context, const BatchRows& rows) {
  const std::span<const int> owners = rows.owners;
  const auto frame_of = [&](std::size_t row) -> Frame& { return *batch.frames[static_cast<std::size_t>(owners[row])]; };
  const auto is_wanted = [&](std::size_t row) { return !rows.wanted || rows.wanted(static_cast<int>(row)); };
  const auto is_taken = [&](std::size_t row) {
    return !frame_of(row).failed() && (rows.take_unwanted || is_wanted(row));
  };
  const auto max_rows = static_cast<std::size_t>(rows.model.maximum(rows.method));
  // Loaded for the first call that is needed: a batch without wanted rows loads no model.
  // Held until the end, so that the cache cannot free the model between two calls.
  std::shared_ptr<Engine> engine;
  std::size_t count = 0;
  for (std::size_t first = 0; first < owners.size(); first += count) {
    // The cut does not depend on failures in these calls: a failed picture keeps its rows, as blanks.
    count = std::min(max_rows, owners.size() - first);
    if (!rows.pack) {
      const auto others =
          std::ranges::find_if(owners.subspan(first, count), [&](int owner) { return owner != owners[first]; });
      count = static_cast<std::size_t>(others - owners.subspan(first, count).begin());
    }
    // A small file that claims to be large fails before millions of calls. Each of them would read the clock.
    const auto failed = [&](int owner) { return batch.frames[static_cast<std::size_t>(owner)]->failed(); };
    if (std::ranges::all_of(owners.subspan(first, count), failed)) continue;
    const double begun_s = context.call_costs == nullptr ? 0 : thread_seconds();
    bool any = false;
    for (std::size_t row = first; row < first + count; ++row) any = any || is_taken(row);
    // A call of blanks and unwanted rows has no result that anyone takes.
    if (!any) continue;
    if (engine == nullptr) engine = rows.model.engine();

    bool unpadded = false;
    const auto make = [&](std::span<const int> chunk, const std::vector<bool>& blank, bool apart) {
      std::vector<CallRow> these;
      for (const int i : chunk) {
        const std::size_t row = first + static_cast<std::size_t>(i);
        // A picture may have failed before this stage, or in an earlier call with other rows of it.
        these.push_back({static_cast<int>(row), blank[static_cast<std::size_t>(i)] || frame_of(row).failed()});
      }
      // A part of a call that ran out of memory would run out again with the rows of the whole call.
      const bool exact = unpadded || apart || (rows.model.one_shape() && these.size() < count);
      const int total = rows.model.padded(static_cast<int>(these.size()), rows.method, exact);
      if (rows.make) return rows.make(these, total, apart);
      const Tensor& images = batch.columns.get(model_inputs).at(rows.model.folder()).images;
      return std::vector<Tensor>{gather(*context.device, images, these, owners, total)};
    };
    const auto call = [&](const std::vector<Tensor>& inputs) {
      // Counts every try, so repeated calls and calls of a search count too.
      ++context.counters[rows.calls];
      auto outputs = engine->call(rows.method, inputs, *context.device);
      // Stages read as many values as are declared. The warm-up calls not all methods, and not in all shapes.
      const Package& package = rows.model.package();
      const CallRows size = package.method(rows.method).call_of(inputs);
      check_outputs(package, rows.method, size, outputs, engine->image_type());
      return outputs;
    };
    const auto call_all = [&] {
      return call_rows(
          owners.subspan(first, count), make, call, [&] { return rows.model.limit(rows.method); }, context.counters);
    };
    std::vector<RowOutcome> outcomes;
    const auto call_unpadded = [&] {
      // A single row cannot be split, but it may fit without the padding.
      if (count > 1 || rows.model.padded(1, rows.method, false) == 1) throw;
      unpadded = true;
      outcomes = call_all();
      outcomes.front().split = true;
    };
    try {
      outcomes = call_all();
    } catch (const OutOfMemoryError&) {
      call_unpadded();
    } catch (const std::bad_alloc&) {  // of the inputs
      call_unpadded();
    }
    std::vector<TakenRow> taken;
    const bool other_shape = rows.model.other_shape(rows.method);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t row = first + i;
      Frame& frame = frame_of(row);
      if (!is_taken(row)) continue;
      if (outcomes[i].outputs == nullptr) {
        // A picture does not fail with a row that it does not need. Its boxes are in the manifest, for example.
        if (is_wanted(row)) frame.fail(rows.stage, Reason::model_failed, outcomes[i].error);
        continue;
      }
      frame.split = frame.split || ((outcomes[i].split || other_shape) && is_wanted(row));
      taken.push_back({static_cast<int>(row), outcomes[i].outputs, outcomes[i].row});
    }
    // Before the next call: outputs that `take` does not keep are freed at the end of this round.
    rows.take(taken);
    if (context.call_costs != nullptr)
      context.call_costs->took(rows.stage, rows.method, static_cast<int>(count), thread_seconds() - begun_s);
  }
}

HostRows::HostRows(Device& device, std::size_t rows, int width)
    : device_(device), width_(static_cast<std::size_t>(width)), rows_(rows) {}

void HostRows::take(std::span<const TakenRow> rows) {
  const std::vector<Tensor>* brought = nullptr;
  const float* values = nullptr;
  for (const TakenRow& row : rows) {
    if (row.outputs.get() != brought) {  // rows of one call are adjacent
      brought = row.outputs.get();
      const Tensor& output = brought->front();
      // The outputs are in host memory already, so the rows point into them.
      if (device_.on_host()) {
        values = output.host<const float>().data();
        kept_.push_back(row.outputs);
      } else {
        const auto memory = device_.mapped<float>(output.bytes() / sizeof(float));
        device_.keep(memory);  // the copy needs it until the wait, also if a later call throws
        device_.keep(row.outputs);
        device_.download(output.data, memory.get(), output.bytes());
        values = memory.get();
        kept_.push_back(memory);
      }
    }
    rows_[static_cast<std::size_t>(row.row)] = values + static_cast<std::size_t>(row.at) * width_;
  }
}

std::span<const float> HostRows::row(std::size_t index) const { return {rows_.at(index), width_}; }

HostRows call_pictures(Batch& batch, const StageContext& context, const StageModel& model, const std::string& stage,
                       const CounterInfo& calls) {
  const Method& method = model.package().methods.front();
  HostRows rows(*context.device, batch.frames.size(), static_cast<int>(method.outputs.front().shape.at(1).length));
  const std::vector<int> slots = every_slot(batch);
  call_rows(batch, context,
            {.stage = stage,
             .model = model,
             .method = method.name,
             .calls = calls,
             .owners = slots,
             .take = [&](std::span<const TakenRow> taken) { rows.take(taken); }});
  context.device->wait();
  return rows;
}

}  // namespace millrace
