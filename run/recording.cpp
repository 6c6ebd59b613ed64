#include "run/recording.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "base/json.hpp"
#include "io/files/files.hpp"
#include "io/results/run_folder.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr int version = 6;
constexpr std::size_t max_stages = 64, max_costs = 1024;  // a run has fewer

// Six digits are more than a clock gives, and short.
double rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return 0;
  const double unit = std::pow(10, std::floor(std::log10(std::abs(value))) - 5);
  return std::round(value / unit) * unit;
}

Json json_of(const StageCosts& stage) {
  Json costs = Json::array();
  for (const Cost& cost : stage.recorded)
    costs.push_back({rounded(cost.core_s), rounded(cost.threads), rounded(cost.device_s), rounded(cost.wait_s),
                     rounded(cost.launch_s)});
  return {{"name", stage.name}, {"costs", std::move(costs)}};
}

Json json_of(const std::vector<StageCosts>& stages) {
  Json all = Json::array();
  for (const auto& stage : stages) all.push_back(json_of(stage));
  return all;
}

/// Throws Json::exception or std::out_of_range for a number outside of [low, high].
double number(const Json& json, double low, double high) {
  const auto value = json.get<double>();
  if (!(value >= low && value <= high)) throw std::out_of_range("");
  return value;
}
int whole(const Json& json, int low, int high) { return static_cast<int>(number(json, low, high)); }

StageCosts stage_from(const Json& json) {
  constexpr double longest_s = 1e5;
  StageCosts stage{json.at("name").get<std::string>()};
  const Json& costs = json.at("costs");
  if (costs.empty() || costs.size() > max_costs) throw std::out_of_range("");
  for (const Json& cost : costs)
    stage.recorded.push_back({number(cost.at(0), 0, longest_s), number(cost.at(1), 1, 4096),
                              number(cost.at(2), 0, longest_s), number(cost.at(3), 0, longest_s),
                              number(cost.at(4), 0, longest_s)});
  return stage;
}

std::vector<StageCosts> stages_from(const Json& json) {
  if (!json.is_array() || json.size() > max_stages) throw std::out_of_range("");
  std::vector<StageCosts> all;
  for (const Json& stage : json) all.push_back(stage_from(stage));
  return all;
}

Json json_of(const RowLimit& limit) {
  return {{"option", limit.option},
          {"stage", limit.stage},
          {"value", limit.value},
          {"most", limit.most},
          {"rows", limit.rows},
          {"calls", limit.calls},
          {"call_s", limit.call_s ? Json(rounded(*limit.call_s)) : Json()}};
}

// The stage must be one of the lane.
RowLimit row_limit_from(const Json& json, const PipelineModel& model) {
  constexpr int most = 1'000'000;
  RowLimit limit{json.at("option").get<std::string>(), json.at("stage").get<std::string>()};
  if (std::ranges::find(model.lane_stages, limit.stage, &StageCosts::name) == model.lane_stages.end())
    throw std::out_of_range("");
  limit.value = whole(json.at("value"), 1, most);
  limit.most = whole(json.at("most"), 1, most);
  limit.rows = number(json.at("rows"), 0, 1e9);
  limit.calls = number(json.at("calls"), 0, 1e9);
  if (const Json& call_s = json.at("call_s"); !call_s.is_null()) limit.call_s = number(call_s, 0, 1e5);
  return limit;
}

// A stage that no frame reaches would never free pixels, and the replay would stand still.
void check_pixels_until(const PipelineModel& model) {
  bool known = model.pixels_until == model.commit.name;
  for (const auto* group : {&model.frame_stages, &model.lane_stages, &model.batch_stages})
    known = known || std::ranges::find(*group, model.pixels_until, &StageCosts::name) != group->end();
  if (!known) throw std::out_of_range("");
}

Recording recording_from(const Json& json) {
  if (json.at("version") != version) throw std::out_of_range("");
  constexpr int many = 1'000'000, threads = 4096;  // the highest values of the options
  Recording recording;
  recording.team = whole(json.at("team"), 1, threads);
  recording.frames_per_s = number(json.at("pictures_per_s"), 1e-9, 1e9);
  recording.latency_s = number(json.at("latency_p95_s"), 0, 1e9);
  recording.memory_bytes = number(json.at("memory_bytes"), 0, 9e18);
  recording.pixel_bytes = number(json.at("pixel_bytes"), 0, 9e18);
  recording.disk_stall = number(json.at("disk_stall"), 0, 1e3);
  PipelineModel& model = recording.model;
  model.frames = whole(json.at("pictures"), 1, 100'000);
  model.batch = whole(json.at("batch"), 1, 1024);
  model.admission = whole(json.at("gate_frames"), model.batch, many);
  // 0: no limit. Fewer than a batch would stand still.
  if (const Json& held = json.at("frames_in_memory"); held != 0)
    model.frames_in_memory = whole(held, model.batch, many);
  model.pixels_until = json.at("pixels_until").get<std::string>();
  model.read_threads = whole(json.at("read_threads"), 1, threads);
  model.workers = whole(json.at("workers"), 1, threads);
  model.lanes = whole(json.at("lanes"), 1, threads);
  model.gpus = whole(json.at("gpus"), 1, threads);
  model.worker_weight = number(json.at("worker_weight"), 1e-3, 1);
  model.cores = number(json.at("cores"), 1e-3, threads);
  model.others = number(json.at("others"), 0, 16 * threads);
  model.input = stage_from(json.at("input"));
  model.read = stage_from(json.at("read"));
  model.frame_stages = stages_from(json.at("frame_stages"));
  model.lane_stages = stages_from(json.at("lane_stages"));
  model.batch_stages = stages_from(json.at("batch_stages"));
  model.commit = stage_from(json.at("commit"));
  check_pixels_until(model);
  const Json& limits = json.at("row_limits");
  if (!limits.is_array() || limits.size() > max_stages) throw std::out_of_range("");
  for (const Json& limit : limits) recording.row_limits.push_back(row_limit_from(limit, model));
  return recording;
}

}  // namespace

std::string to_json(const Recording& recording) {
  const PipelineModel& model = recording.model;
  Json limits = Json::array();
  for (const RowLimit& limit : recording.row_limits) limits.push_back(json_of(limit));
  return Json{{"version", version},
              {"pictures_per_s", recording.frames_per_s},
              {"latency_p95_s", rounded(recording.latency_s)},
              {"team", recording.team},
              {"pictures", model.frames},
              {"batch", model.batch},
              {"gate_frames", model.admission},
              {"frames_in_memory", model.frames_in_memory},
              {"pixels_until", model.pixels_until},
              {"memory_bytes", recording.memory_bytes},
              {"pixel_bytes", rounded(recording.pixel_bytes)},
              {"disk_stall", rounded(recording.disk_stall)},
              {"read_threads", model.read_threads},
              {"workers", model.workers},
              {"lanes", model.lanes},
              {"gpus", model.gpus},
              {"worker_weight", model.worker_weight},
              {"cores", model.cores},
              {"others", model.others},
              {"input", json_of(model.input)},
              {"read", json_of(model.read)},
              {"frame_stages", json_of(model.frame_stages)},
              {"lane_stages", json_of(model.lane_stages)},
              {"batch_stages", json_of(model.batch_stages)},
              {"commit", json_of(model.commit)},
              {"row_limits", std::move(limits)}}
      .dump();
}

std::optional<Recording> recording_from_json(std::string_view text) {
  try {
    return recording_from(Json::parse(text));
  } catch (const Json::exception&) {
    return std::nullopt;
  } catch (const std::out_of_range&) {
    return std::nullopt;
  }
}

std::optional<std::pair<std::string, Recording>> newest_recording(const std::string& output,
                                                                  const std::string& without) {
  constexpr std::int64_t largest = 16 << 20;
  std::vector<std::string> attempts = attempts_of(output);
  std::ranges::reverse(attempts);
  for (const std::string& attempt : attempts) {
    const std::string file = output + "/runs/" + attempt + "/recording.json";
    std::error_code error;
    if (attempt == without || !std::filesystem::exists(file, error)) continue;
    if (auto recording = recording_from_json(read_text_file(file, largest)))
      return std::pair(attempt, *std::move(recording));
  }
  return std::nullopt;
}

}  // namespace millrace
