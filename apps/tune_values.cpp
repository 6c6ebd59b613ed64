// The options that `millrace tune` changes, and the reasons for their values.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "apps/format.hpp"
#include "apps/tune.hpp"
#include "run/settings.hpp"

namespace millrace {
namespace {

constexpr std::array<const char*, 6> tuned_options{"batch.size",  "threads.lanes",     "threads.workers",
                                                   "gate.frames", "segment.box_batch", "device.precision"};

/// Numbers in ascending order, with `now` among them.
std::vector<std::string> numbers(std::vector<int> values, int now, int lowest, int highest) {
  std::erase_if(values, [&](int value) { return value < lowest || value > highest; });
  values.push_back(now);
  std::ranges::sort(values);
  values.erase(std::unique(values.begin(), values.end()), values.end());
  std::vector<std::string> texts;
  for (const int value : values) texts.push_back(std::to_string(value));
  return texts;
}

std::string rate_text(double rate) { return format("%.*f", rate < 10 ? 2 : rate < 100 ? 1 : 0, rate); }

bool of_models(const std::string& option) { return option == "threads.lanes" || option == "device.precision"; }

/// Whether the user left the choice to the program. A recipe that lists all options has 0 or auto for such options.
bool is_free(const Settings& settings, const std::string& option) {
  const auto dot = option.find('.');
  const std::string group = option.substr(0, dot), name = option.substr(dot + 1);
  for (const View& view : settings.views()) {
    const auto own = view.options.find(group);
    if (own != view.options.end() && own->second.count(name) > 0) return false;
  }
  const std::string& origin = settings.origin(option);
  if (origin == "default" || origin == "GPU") return true;
  const std::string value = settings.text(option);
  return !origin.starts_with(command_line) && (value == "0" || value == "auto");
}

}  // namespace

bool any_free(const Settings& settings, bool has_models) {
  return std::ranges::any_of(tuned_options, [&](const std::string& option) {
    const bool exists = option == "segment.box_batch" ? settings.runs("segment") : has_models || !of_models(option);
    return exists && is_free(settings, option);
  });
}

TuneKnobs knobs_for(const Settings& settings, const ResolvedConfig& resolved, const Devices& devices, bool has_models,
                    int cores, int most_lanes, int most_frames, const std::vector<std::string>& precisions) {
  const bool gpu = devices.lanes_wait_for_gpu();
  TuneKnobs all;
  const auto add = [&](Knob knob, const std::string& now) {
    if (!is_free(settings, knob.option) || knob.values.size() < 2 || (of_models(knob.option) && !has_models)) return;
    const auto at = std::ranges::find(knob.values, now);
    all.defaults.push_back(at == knob.values.end() ? 0 : static_cast<std::size_t>(at - knob.values.begin()));
    all.knobs.push_back(std::move(knob));
  };
  const auto add_number = [&](Knob knob, std::vector<int> values, int now, int lowest, int highest) {
    knob.values = numbers(std::move(values), now, lowest, highest);
    add(std::move(knob), std::to_string(now));
  };
  const GraphOptions& graph = resolved.graph;
  add_number({"batch.size", {}, true, Doubts::batch, true},
             gpu ? std::vector{1, 4, 8, 16, 32, 64} : std::vector{1, 2, 4, 8}, resolved.batch_size, 1,
             std::max(most_frames / 2, 1));
  add_number({"threads.lanes", {}, true, Doubts::lanes, true}, {1, 2, 3, 4, 6, 8, 12, 16, 24, 32}, graph.lanes,
             devices.count(), gpu ? 6 * devices.count() : std::min(cores, most_lanes));
  add_number({"threads.workers", {}, true, Doubts::workers}, {1, 2, 4, 8, 16, 32, 64}, graph.workers, 1,
             std::max(cores, 2));
  const int frames = static_cast<int>(graph.admission_items);
  add_number({"gate.frames", {}, true, Doubts::gate}, {frames / 4, frames / 2, 2 * frames, 4 * frames}, frames,
             2 * resolved.batch_size, most_frames);
  if (settings.runs("segment")) {
    const int boxes = std::atoi(settings.text("segment.box_batch").c_str());
    add_number({"segment.box_batch", {}, false, Doubts::box_batch, true},
               gpu ? std::vector{16, 64, 160, 256} : std::vector{4, 16, 64}, boxes, 1, 4096);
  }
  add({"device.precision", precisions, false, Doubts::precision, false, false}, settings.text("device.precision"));
  return all;
}

std::vector<TunedValue> tuned_values(Tuner& tuner, const Trial& best) {
  std::vector<TunedValue> all;
  for (std::size_t i = 0; i < tuner.knobs().size(); ++i) {
    const Knob& knob = tuner.knobs()[i];
    const std::size_t value = best.point[i];
    std::string others;
    const auto add = [&](std::size_t other) {
      TunerPoint point = best.point;
      point[i] = other;
      std::string found;
      if (const Trial* trial = tuner.tried(point)) {
        found = !trial->fits               ? "out of memory"
                : trial->frames_per_s <= 0 ? "failed"
                : !trial->usable           ? "other results"
                                           : rate_text(trial->frames_per_s) + " measured";
      } else if (const auto guess = tuner.guess(point); guess && knob.predicted) {
        found = rate_text(guess->frames_per_s) + " predicted";
      } else {
        return;
      }
      others += "; " + knob.values[other] + ": " + found;
    };
    if (value > 0) add(value - 1);
    if (value + 1 < knob.values.size()) add(value + 1);
    const std::string reason = rate_text(best.frames_per_s) + " pictures/s" +
                               (others.empty() ? "; its other values were not tried with these" : others);
    all.push_back({knob.option, knob.values[value], reason});
  }
  return all;
}

}  // namespace millrace
