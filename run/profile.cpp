#include "run/profile.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <memory>
#include <new>
#include <utility>

#include "base/text.hpp"
#include "gpu/nvml.hpp"
#include "gpu/stream.hpp"
#include "models/variant.hpp"
#include "run/host_memory.hpp"
#include "run/profile_lane.hpp"

namespace millrace {
namespace {

constexpr double tolerance = 0.03;       // of the optimum
constexpr std::size_t fewest_calls = 5;  // of a row; fewer say nothing about the spread
constexpr std::size_t most_calls = 10'000;
constexpr double nvml_window_s = 1;  // the driver's share of the time is about its last second

double now_s() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Resets peak_memory() to the present size, and returns it. Nothing if the system does not allow it.
std::optional<std::int64_t> reset_peak() {
  std::ofstream reset("/proc/self/clear_refs");
  reset << "5" << std::flush;
  return reset ? peak_memory() : std::nullopt;
}

/// A package that stages call.
struct Unit {
  std::string folder;
  std::vector<std::string> views, stages;
};

void add_once(std::vector<std::string>& list, const std::string& word) {
  if (std::find(list.begin(), list.end(), word) == list.end()) list.push_back(word);
}

std::vector<Unit> units_of(const std::vector<PlannedView>& views) {
  std::vector<Unit> units;
  for (const PlannedView& view : views) {
    for (const auto& link : view.chain->links()) {
      for (const ModelUse& use : link.info.models) {
        if (use.folder.empty()) continue;
        auto unit = std::find_if(units.begin(), units.end(), [&](const Unit& one) { return one.folder == use.folder; });
        if (unit == units.end()) unit = units.insert(units.end(), {use.folder, {}, {}});
        add_once(unit->views, view.name);
        add_once(unit->stages, link.info.name);
      }
    }
  }
  return units;
}

std::string engine_word(const ProfileCombination& combination, const Package& package) {
  if (package.variant != nullptr) return "aoti";
  return combination.config.models.engine.starts_with("simulated:") ? "simulated" : "torchscript";
}

std::string layout_word(const ProfileCombination& combination, const Package& package) {
  if (engine_word(combination, package) != "torchscript") return "";
  return combination.channels_last ? "channels-last" : "channels-first";
}

/// Calls one method at one size in one combination. Between release() and prepare(), it holds no memory of the device,
/// except that of its CUDA graphs.
class Calls {
 public:
  /// `graphs` are those of the lane; null: its calls are plain.
  Calls(ProfileLane& lane, const Package& package, const Method& method, const GraphUse* graphs, ProfileRow row)
      : row(std::move(row)),
        lane_(lane),
        package_(package),
        method_(method),
        graphs_(graphs),
        engine_(lane.engine(package)) {}

  /// One call alone, with the memory that it takes. Returns false if memory runs out.
  bool first_call() {
    release();
    Stream* const stream = lane_.device().stream();
    const auto free_before = stream == nullptr ? std::nullopt : stream->memory();
    const auto before = stream == nullptr ? reset_peak() : std::nullopt;
    const bool fits = attempt([&] {
      inputs_ = lane_.inputs(package_, method_, row.size);
      const auto outputs = engine_->call(method_.name, inputs_, lane_.device());
      check_outputs(package_, method_.name, method_.call_of(inputs_), outputs, engine_->image_type());
      lane_.device().wait();
    });
    // Allocators keep the memory of the call, so the difference is its peak.
    if (fits && free_before)
      row.memory_bytes = std::max<std::int64_t>(0, free_before->free_bytes - stream->memory()->free_bytes);
    if (const auto peak = fits && before ? peak_memory() : std::nullopt)
      row.memory_bytes = std::max<std::int64_t>(0, *peak - *before);
    release();
    return fits;
  }

  /// Makes the inputs, and a call that takes memory from the system, so that later calls need not.
  bool prepare() {
    return attempt([&] {
      inputs_ = lane_.inputs(package_, method_, row.size);
      engine_->call(method_.name, inputs_, lane_.device());
      lane_.device().wait();
    });
  }

  /// One more call. Its time counts if `timed`. Returns false if memory runs out.
  bool call(bool timed) {
    return attempt([&] {
      double seconds = 0;
      const double begun = now_s();
      // The outputs are freed before the wait, as the device allows.
      const auto work = [&] { engine_->call(method_.name, inputs_, lane_.device()); };
      if (Stream* const stream = lane_.device().stream()) {
        seconds = stream->time(work, 0);
      } else {
        work();
      }
      // A device without a clock has the time of the host.
      if (seconds <= 0) seconds = now_s() - begun;
      if (timed) seconds_.push_back(seconds);
    });
  }

  void release() {
    inputs_.clear();
    lane_.give_back(*engine_);
  }

  void forget_times() { seconds_.clear(); }
  void take_times() {
    if (!seconds_.empty()) row.times = times_of(seconds_);
  }

  ProfileRow row;

 private:
  template <class Work>
  bool attempt(const Work& work) {
    const std::size_t refused = graphs_ == nullptr ? 0 : graphs_->refusals().size();
    try {
      work();
      return graphs_ == nullptr || all_captured(refused);
    } catch (const OutOfMemoryError&) {
      return false;
    } catch (const std::bad_alloc&) {
      return false;
    } catch (const ModelError& error) {
      throw ModelError(package_.folder.string() + ": " + error.what());
    }
  }

  // A plain call would be measured in the place of a graph. The first refusals, `known` ones, are of earlier sizes.
  bool all_captured(std::size_t known) const {
    const auto refusals = graphs_->refusals();
    const auto never = std::find_if(refusals.rbegin(), refusals.rend(),
                                    [](const GraphUse::Refusal& refusal) { return !refusal.no_memory; });
    if (never != refusals.rend()) throw ModelError(text_of(*never));
    return refusals.size() == known;
  }

  ProfileLane& lane_;
  const Package& package_;
  const Method& method_;
  const GraphUse* const graphs_;
  const std::shared_ptr<Engine> engine_;
  std::vector<Tensor> inputs_;
  std::vector<double> seconds_;
};

class Profiling {
 public:
  Profiling(const ProfileRequest& request, const EngineFactory& factory, const ProfileListener& listener)
      : request_(request), listener_(listener) {
    if (!request.devices.buses.empty()) nvml_ = Nvml::open();
    for (const ProfileCombination& combination : request.combinations) {
      graphs_.push_back(combination.graphs ? std::make_shared<GraphUse>() : nullptr);
      const auto with_options = [factory, channels_last = combination.channels_last, graphs = graphs_.back()](
                                    const Package& package, EngineOptions options) {
        options.channels_last = channels_last;
        options.graphs = graphs;
        return factory(package, options);
      };
      auto& lane = *lanes_.emplace_back(std::make_unique<ProfileLane>(
          combination.config, combination.packages, request.devices, request.pictures.view_names, with_options));
      const auto notes = lane.record(request.pictures, request.seed, listener.stopped);
      // All combinations get the same pictures, so their notes are the same.
      if (lanes_.size() > 1) continue;
      for (const auto& note : notes) listener.note(note);
    }
  }

  void run() {
    for (const Unit& unit : units_of(lanes_.front()->views())) {
      for (const Method& method : request_.combinations.front().packages.at(unit.folder)->methods)
        measure(unit, method);
    }
  }

 private:
  void measure(const Unit& unit, const Method& method) {
    std::vector<ProfileRow> rows;
    std::vector<std::string> left_out;
    for (const int size : method.rows_are_pictures() ? request_.batches : request_.boxes) {
      if (size > method.maximum) {
        left_out.push_back(std::to_string(size));
      } else if (!listener_.stopped()) {
        for (ProfileRow& row : measure(unit, method, size)) rows.push_back(std::move(row));
      }
    }
    if (!left_out.empty()) {
      listener_.note(request_.combinations.front().packages.at(unit.folder)->name + ": " + method.name +
                     " takes at most " + count_of(method.maximum, word_of(method.row), words_of(method.row)) +
                     " a call, so " + listed(left_out) + (left_out.size() == 1 ? " is" : " are") + " left out");
    }
    if (rows.empty()) return;
    finish(rows);
    listener_.measured(rows);
  }

  /// All combinations at one size. Empty if a stop came before all of them had enough calls.
  std::vector<ProfileRow> measure(const Unit& unit, const Method& method, int size) {
    std::vector<Calls> all;
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      const ProfileCombination& combination = request_.combinations[i];
      const auto& package = combination.packages.at(unit.folder);
      if (combination.only_variants && package->variant == nullptr) continue;
      ProfileLane& lane = *lanes_[i];
      ProfileRow row{.views = unit.views,
                     .stages = unit.stages,
                     .package = package->name,
                     .method = method.name,
                     .unit = method.row,
                     .size = size,
                     .combination = i,
                     .precision = lane.resolved().precisions.name({{unit.folder, package}}),
                     .engine = engine_word(combination, *package),
                     .layout = layout_word(combination, *package),
                     .graph = combination.graphs,
                     .real_inputs = lane.has_inputs(*package, method)};
      all.emplace_back(lane, *package, package->method(method.name), graphs_[i].get(), std::move(row));
    }
    std::vector<Calls*> fitting;
    for (Calls& one : all) {
      if (listener_.stopped()) return {};
      if (one.first_call()) fitting.push_back(&one);
    }
    End end = take_turns(fitting);
    // Each fits alone, but they do not fit together.
    if (end == End::out_of_memory) {
      for (Calls* const one : fitting) {
        one->forget_times();
        end = take_turns({one});
        if (end == End::out_of_memory) one->forget_times();  // another program took the memory meanwhile
        if (end == End::stopped) break;
      }
    }
    if (end == End::stopped) return {};
    std::vector<ProfileRow> rows;
    for (Calls& one : all) {
      one.take_times();
      rows.push_back(std::move(one.row));
    }
    return rows;
  }

  enum class End { done, stopped, out_of_memory };

  // Calls them in turns, forwards and backwards, so that a drift of the machine changes all of them alike.
  End take_turns(const std::vector<Calls*>& all) {
    const End end = turns(all);
    for (Calls* const one : all) one->release();
    return end;
  }

  End turns(const std::vector<Calls*>& all) {
    for (Calls* const one : all) {
      if (!one->prepare()) return End::out_of_memory;
    }
    const double begun = now_s();
    for (std::size_t round = 0; round < most_calls && !all.empty(); ++round) {
      const bool enough = round >= fewest_calls;
      if (enough && now_s() - begun >= request_.seconds * static_cast<double>(all.size())) break;
      if (listener_.stopped()) return enough ? End::done : End::stopped;
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (!all[round % 2 == 0 ? i : all.size() - 1 - i]->call(true)) return End::out_of_memory;
      }
    }
    for (Calls* const one : all) watch_gpu(*one);
    return End::done;
  }

  // The driver's share covers a second, so each combination gets a second of its own.
  void watch_gpu(Calls& one) {
    if (nvml_ == nullptr) return;
    for (const double begun = now_s(); now_s() - begun < nvml_window_s && !listener_.stopped();) one.call(false);
    one.row.gpu_percent = nvml_->sample(request_.devices.buses.front()).utilisation_percent;
  }

  // Marks the optimum of each combination, and compares each rate with that of the first combination.
  void finish(std::vector<ProfileRow>& rows) const {
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      std::vector<ProfileRow> own;
      std::vector<std::size_t> places;
      for (std::size_t at = 0; at < rows.size(); ++at) {
        if (rows[at].combination != i) continue;
        own.push_back(rows[at]);
        places.push_back(at);
      }
      if (const auto best = optimum(own)) rows[places[*best]].optimum = true;
    }
    for (ProfileRow& row : rows) {
      if (lanes_.size() == 1) break;
      const auto first = std::find_if(rows.begin(), rows.end(), [&](const ProfileRow& other) {
        return other.combination == 0 && other.size == row.size && other.times;
      });
      if (first != rows.end() && row.times) row.ratio = row.rate() / first->rate();
    }
  }

  const ProfileRequest& request_;
  const ProfileListener& listener_;
  // Parallel to the combinations.
  std::vector<std::shared_ptr<GraphUse>> graphs_;
  std::vector<std::unique_ptr<ProfileLane>> lanes_;
  std::unique_ptr<Nvml> nvml_;
};

}  // namespace

CallTimes times_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const auto at = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(seconds.size())));
    return seconds[std::max<std::size_t>(rank, 1) - 1];
  };
  return {seconds.size(), at(0.5), at(0.05), at(0.95)};
}

std::optional<std::size_t> optimum(std::span<const ProfileRow> rows) {
  double best = 0;
  for (const ProfileRow& row : rows) best = std::max(best, row.rate());
  std::optional<std::size_t> found;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (best <= 0 || rows[i].rate() < (1 - tolerance) * best) continue;
    if (!found || rows[i].size < rows[*found].size) found = i;
  }
  return found;
}

void profile(const ProfileRequest& request, const EngineFactory& factory, const ProfileListener& listener) {
  Profiling(request, factory, listener).run();
}

}  // namespace millrace
