#include "run/memory_plan.hpp"

#include <algorithm>
#include <charconv>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "base/text.hpp"

namespace millrace {
namespace {

/// Reads device.memory with the rules of all options: "8G".
struct Bytes {
  std::int64_t memory = 0;
  void visit(OptionVisitor& v) { v.bytes("memory", memory, "", {1 << 20, 9e18}); }
};

/// The share that device.memory names; nothing if it names bytes.
std::optional<double> share_of(const std::string& option) {
  double share = 0;
  const auto [end, error] = std::from_chars(option.data(), option.data() + option.size(), share);
  const bool whole = error == std::errc() && end == option.data() + option.size();
  return whole && share > 0 && share <= 1 ? std::optional(share) : std::nullopt;
}

std::string bytes_text(std::int64_t bytes) { return readable_bytes(static_cast<double>(bytes)); }

std::int64_t bytes_of(const TensorSpec& spec) { return Tensor{nullptr, nullptr, spec.shape, spec.dtype}.bytes(); }

/// Calls the models of a run on a device, and makes their calls smaller.
class Calls {
 public:
  Calls(const MemoryNeeds& needs, Device& device, ModelCache& models, CallLimits& limits)
      : needs_(needs), device_(device), models_(models), limits_(limits) {
    for (const PlannedModel& model : needs.models) {
      // Loads the model: plan_memory() measures the memory of all models together.
      some_engine_ = models_.acquire(*model.package);
      images_[model.use.folder] = some_engine_->image_type();
    }
    give_back();  // loading leaves temporary memory behind
    loaded_bytes_ = peak_bytes();
  }

  /// Calls each method alone, in its largest call, and measures what it needs. Then calls all of them in turn.
  void call_all() {
    // A call that runs out of memory lowers a limit. shrink() compares.
    called_with_ = rows(limits_);
    needed_.clear();
    for_each_model([&](Engine& engine, const PlannedModel& model, const MethodRows& rows) {
      for (const Method& method : model.package->methods) measure(engine, *model.package, method, rows);
    });
    give_back();
    call_in_turn();
  }

  /// Calls all methods as a lane does, so that allocators keep as much memory as they would in a run.
  void call_in_turn() {
    for_each_model([&](Engine& engine, const PlannedModel& model, const MethodRows& rows) {
      warm_up(engine, *model.package, rows, device_);
    });
  }

  /// The most that a call needs at once.
  std::int64_t needed_bytes() const {
    std::int64_t most = 0;
    for (const auto& [key, bytes] : needed_) most = std::max(most, bytes);
    return most;
  }
  /// The same, of the calls of each stage.
  std::map<std::string, std::int64_t> bytes_of_stages() const {
    std::map<std::string, std::int64_t> all;
    for (const PlannedModel& model : needs_.models) {
      std::int64_t& most = all[model.stage];
      for (const Method& method : model.package->methods)
        most = std::max(most, needed_.at({model.package->id(), method.name}));
    }
    return all;
  }

  /// Makes smaller the calls that ran out of memory; if none did, those that need most. Returns false if none can be
  /// smaller.
  bool shrink() {
    // Learned limits can be forgotten (CallLimits::ran_out). Limits that are set stay.
    for (const auto& [key, max_rows] : limits_.learned()) limits_.limit_rows(key.first, key.second, max_rows);
    if (rows(limits_) != called_with_) return true;
    std::vector<std::pair<std::int64_t, CallLimits::Key>> by_need;
    for (const auto& [key, bytes] : needed_) by_need.emplace_back(bytes, key);
    std::ranges::sort(by_need, std::greater());
    for (const auto& [bytes, key] : by_need) {
      // limit_rows() rounds down, so this is the next smaller power of two.
      limits_.limit_rows(key.first, key.second, called_with_.at(key) - 1);
      if (rows(limits_) != called_with_) return true;
    }
    return false;
  }

  /// Frees memory that is kept for later calls, so that the driver reports only the memory in use.
  void give_back() {
    device_.wait();
    if (some_engine_ != nullptr) some_engine_->trim();
    device_.stream()->trim();
  }

  /// The calls that are smaller than options and packages allow.
  std::map<CallLimits::Key, int> smaller() const {
    const auto allowed = rows({});
    std::map<CallLimits::Key, int> found;
    for (const auto& [key, max_rows] : rows(limits_)) {
      if (max_rows < allowed.at(key)) found[key] = max_rows;
    }
    return found;
  }

  /// The maximum bytes of a batch: a full slab for each raster, and the inputs and kept outputs of each stage's model.
  /// A lane works on one view at a time. So if views have different models in a stage, only the largest counts.
  std::int64_t bytes_of_pictures() const {
    std::map<std::size_t, std::int64_t> of_links;
    for (const PlannedModel& model : needs_.models) {
      std::int64_t& largest = of_links[model.link];
      largest = std::max(largest, bytes_of_pictures(model));
    }
    std::int64_t all = needs_.batch_size * needs_.slab_bytes;
    for (const auto& [link, bytes] : of_links) all += bytes;
    return all;
  }

 private:
  template <class Work>
  void for_each_model(const Work& work) {
    for (const PlannedModel& model : needs_.models) {
      try {
        work(*models_.acquire(*model.package), model, shape_of(model, limits_).rows);
      } catch (const OutOfMemoryError&) {
        throw;
      } catch (const ModelError& error) {
        throw ModelError(model.use.folder + ": " + error.what());
      }
    }
  }

  void measure(Engine& engine, const Package& package, const Method& method, const MethodRows& rows) {
    std::int64_t& most = needed_[{package.id(), method.name}];
    const std::int64_t other = std::exchange(most, std::numeric_limits<std::int64_t>::max());  // if memory runs out
    give_back();
    warm_up_method(engine, package, method, rows, device_);
    device_.wait();
    most = std::max(other, peak_bytes() - loaded_bytes_);  // other: of another stage that calls it
  }

  /// Memory in use, with the most that LibTorch used at once since give_back() in place of what it keeps. LibTorch keeps
  /// blocks of many sizes while the driver has free memory. So a GPU with more memory would seem to need more.
  std::int64_t peak_bytes() const {
    const DeviceMemory memory = *device_.stream()->memory();
    const TorchMemory torch = some_engine_ == nullptr ? TorchMemory{} : some_engine_->torch_memory();
    return memory.total_bytes - memory.free_bytes - torch.kept_bytes + torch.peak_bytes;
  }

  std::int64_t bytes_of_pictures(const PlannedModel& model) const {
    const Package& package = *model.package;
    const DType images = images_.at(model.use.folder);
    const auto bytes_of_all = [](const std::vector<TensorSpec>& specs) {
      std::int64_t bytes = 0;
      for (const TensorSpec& spec : specs) bytes += bytes_of(spec);
      return bytes;
    };
    std::int64_t bytes = 0;
    if (model.use.of_pictures)
      bytes += bytes_of_all(specs_of({picture_inputs()}, package.input, {needs_.batch_size, 0}, images));
    for (const ModelUse::Calls& calls : model.use.calls) {
      // The rows of outputs that a lane keeps at once, such as embeddings and logits.
      const auto a_picture = std::int64_t{needs_.batch_size} * calls.kept_per_picture;
      const auto an_object = std::int64_t{needs_.batch_size} * needs_.objects * calls.kept_per_object;
      for (const std::int64_t rows : {a_picture, an_object}) {
        if (rows > 0) bytes += bytes_of_all(outputs_of(package, calls.method, {rows, rows}, images));
      }
    }
    return bytes;
  }
  CallShape shape_of(const PlannedModel& model, const CallLimits& limits) const {
    return call_shape(model, needs_.batch_size, limits);
  }
  /// The largest call of each method. Several stages can call the same package.
  std::map<CallLimits::Key, int> rows(const CallLimits& limits) const {
    std::map<CallLimits::Key, int> all;
    for (const PlannedModel& model : needs_.models) {
      for (const auto& [method, count] : shape_of(model, limits).rows) {
        int& rows = all[{model.package->id(), method}];
        rows = std::max(rows, count);
      }
    }
    return all;
  }

  const MemoryNeeds& needs_;
  Device& device_;
  ModelCache& models_;
  CallLimits& limits_;
  std::shared_ptr<Engine> some_engine_;  // to free LibTorch's memory, which all engines share
  std::map<std::string, DType> images_;
  std::map<CallLimits::Key, int> called_with_;
  std::int64_t loaded_bytes_ = 0;
  std::map<CallLimits::Key, std::int64_t> needed_;  // by each call alone
};

}  // namespace

std::string MemoryPlan::text() const {
  std::string text = device + ": " + bytes_text(free_bytes) + " free, limit " + bytes_text(limit_bytes) + ": models " +
                     bytes_text(models_bytes) + ", " + count_of(lanes, "lane") + " of " + bytes_text(lane_bytes()) +
                     " (calls " + bytes_text(calls_bytes) + ", pictures up to " + bytes_text(pictures_bytes) + ")";
  if (lanes < wanted_lanes) text += "; there is no room for " + std::to_string(wanted_lanes) + " lanes";
  if (bytes() > limit_bytes) text += "; a lane may need more than the limit: lower batch.size or gate.slab";
  for (const auto& [key, rows] : smaller_calls) {
    const auto& [package, kind] = called.at(key);
    text += "; " + package + ": " + key.second + " takes " + count_of(rows, word_of(kind), words_of(kind)) + " a call";
  }
  if (!known_from.empty()) text += "; earlier runs ran out of memory (to try larger calls, remove " + known_from + ")";
  return text;
}

std::int64_t memory_limit(const std::string& option, const DeviceMemory& memory) {
  if (const auto share = share_of(option))
    return static_cast<std::int64_t>(*share * static_cast<double>(memory.free_bytes));
  try {
    return std::min(memory.free_bytes, parse_options<Bytes>("device", {{"memory", {option}}}).memory);
  } catch (const UsageError&) {
    throw UsageError("device.memory is '" + option + "'; it must be a share such as 0.9, or bytes such as 8G");
  }
}

std::optional<MemoryPlan> plan_memory(const MemoryNeeds& needs, Device& device, ModelCache& models,
                                      CallLimits& limits) {
  Stream* const stream = device.stream();
  const auto before = stream == nullptr ? std::nullopt : stream->memory();
  if (!before) return std::nullopt;
  MemoryPlan plan;
  plan.device = "GPU " + std::to_string(stream->device());
  plan.total_bytes = before->total_bytes;
  plan.free_bytes = before->free_bytes;
  plan.limit_bytes = memory_limit(needs.memory, *before) / needs.sharing;
  plan.wanted_lanes = needs.lanes;
  if (needs.known.recall(needs.kind, plan.limit_bytes, needs.packages, limits)) plan.known_from = needs.known.file();

  Calls calls(needs, device, models, limits);
  const std::int64_t loaded = stream->memory()->free_bytes;
  plan.models_bytes = before->free_bytes - loaded;
  plan.pictures_bytes = calls.bytes_of_pictures();
  const auto smaller_or_throw = [&] {
    calls.give_back();
    if (calls.shrink()) return;
    throw OutOfMemoryError(plan.device + ": not even one picture fits into memory, with " +
                           bytes_text(plan.free_bytes) + " free at the start; use smaller models or another GPU");
  };
  const auto taken = [&] { return std::max<std::int64_t>(0, loaded - stream->memory()->free_bytes); };
  if (needs.graphs != nullptr) needs.graphs->paused = true;
  // Makes calls smaller until models and one lane fit.
  while (true) {
    try {
      calls.call_all();
    } catch (const OutOfMemoryError&) {
      smaller_or_throw();
      continue;
    } catch (const std::bad_alloc&) {
      smaller_or_throw();
      continue;
    }
    // Allocators keep the memory of calls for later ones.
    plan.calls_bytes = taken();
    const std::int64_t room = plan.limit_bytes - plan.models_bytes;
    const std::int64_t pictures = plan.pictures_bytes;
    // What the largest possible pictures leave. Calls that do not fit during the run are retried in halves.
    std::int64_t for_calls = room - pictures, needed = plan.calls_bytes;
    if (share_of(needs.memory)) {
      // A share is only a guess, and a usual picture is far smaller than the largest possible one. So calls may take as
      // much as those. This grows with the room. What calls need does not depend on it, unlike what allocators keep
      // for later: they give that back when memory runs short. So more memory never leads to smaller calls.
      for_calls = std::max(for_calls, std::min(room, pictures));
      needed = calls.needed_bytes();
    } else if (for_calls < 0) {
      break;  // pictures alone may exceed the limit, so smaller calls do not help
    }
    if (needed <= for_calls || !calls.shrink()) break;
    calls.give_back();
  }
  if (needs.graphs != nullptr) {
    needs.graphs->paused = false;
    try {
      calls.call_in_turn();
      plan.calls_bytes = std::max(plan.calls_bytes, taken());
    } catch (const OutOfMemoryError&) {  // the run makes smaller calls, and those without memory for a graph stay plain
    } catch (const std::bad_alloc&) {
    }
  }
  calls.give_back();
  plan.stage_bytes = calls.bytes_of_stages();
  plan.smaller_calls = calls.smaller();
  for (const PlannedModel& model : needs.models) {
    for (const Method& method : model.package->methods)
      plan.called.emplace(CallLimits::Key{model.package->id(), method.name},
                          std::pair(model.package->name, method.row));
  }
  // A copy, because the run may forget a learned limit.
  plan.ran_out = limits.learned();
  const auto room = plan.limit_bytes - plan.models_bytes;
  // At least one lane, even if it may need more than the limit. text() then says so.
  plan.lanes =
      static_cast<int>(std::clamp<std::int64_t>(room / std::max<std::int64_t>(1, plan.lane_bytes()), 1, needs.lanes));
  return plan;
}

}  // namespace millrace
