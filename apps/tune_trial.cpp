#include "apps/tune_trial.hpp"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "apps/arguments.hpp"
#include "apps/attempt.hpp"
#include "apps/format.hpp"
#include "base/json.hpp"
#include "io/files/files.hpp"
#include "io/results/comparison.hpp"
#include "models/engine.hpp"
#include "run/recording.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::int64_t largest_file = 16 << 20;
// Target T7 (docs/performance_cpu.md) for fast paths, on the objects of the sample.
constexpr double lowest_mean_iou = 0.995, lowest_p1_iou = 0.97;
constexpr std::int64_t fewest_pairs = 20;   // fewer objects say too little
constexpr double most_lone_objects = 0.02;  // share of objects that only one of the precisions finds

}  // namespace

bool TrialRun::ran_out_of_memory() const { return end.signal == SIGKILL || says_out_of_memory(end.messages); }

std::string TrialRun::why() const {
  if (all_failed) return "every picture of the sample failed";
  const auto last = end.messages.find_last_not_of('\n');
  if (last == std::string::npos) return {};
  const auto before = end.messages.rfind('\n', last);
  const std::size_t begin = before == std::string::npos ? 0 : before + 1;
  std::string line = end.messages.substr(begin, last + 1 - begin);
  const std::string prefix = "millrace: ";
  if (line.starts_with(prefix)) line.erase(0, prefix.size());
  return line;
}

// All lanes get the same number of full batches. Otherwise some would be idle at the end, which a long run does not notice.
std::int64_t TrialRunner::pictures_of(const std::vector<std::pair<std::string, std::string>>& values) const {
  std::int64_t batch = usual_.batch_size, lanes = usual_.graph.lanes;
  for (const auto& [option, value] : values) {
    if (option == "batch.size") batch = std::atoi(value.c_str());
    if (option == "threads.lanes") lanes = std::atoi(value.c_str());
  }
  const std::int64_t round = std::max(batch * lanes, std::int64_t{1});
  return sample_.pictures < round ? sample_.pictures : sample_.pictures / round * round;
}

TrialRun TrialRunner::run(const std::vector<std::pair<std::string, std::string>>& values, const std::string& name) {
  fs::remove_all(output(name));
  Settings settings = settings_;
  for (const auto& [option, value] : values) settings.set(option, {value}, "tune");
  const int every = std::max(std::atoi(settings.text("input.every").c_str()), 1);
  settings.set("input.every", {std::to_string(every * sample_.every)}, "tune");
  settings.set("input.limit", {std::to_string(pictures_of(values))}, "tune");
  settings.set("output.folder", {output(name)}, "tune");
  // These files belong to the real run.
  settings.set("trace.file", {""}, "tune");
  settings.set("trace.capture", {""}, "tune");
  settings.set("events.file", {""}, "tune");
  settings.set("serve.address", {""}, "tune");
  settings.set("measure.enabled", {"yes"}, "tune");
  const std::string recipe = folder_ + "/trial.yaml";
  write_result_file(recipe, settings.print());
  TrialRun outcome;
  outcome.end = run_child({"run", recipe, "--quiet"}, folder_ + "/messages.txt", signals_);
  const int code = outcome.end.exit_code;
  const bool finished = outcome.end.signal == 0 &&
                        (code == static_cast<int>(ExitCode::ok) || code == static_cast<int>(ExitCode::some_failed));
  if (!finished) return outcome;
  const Attempt attempt = read_attempt(output(name), {});
  const Json& window = attempt.report.at("run_window");
  // The rate between filling and draining would be wrong: with few batches, it depends on how they come together.
  outcome.pictures_per_s = window.at("pictures_per_s");
  if (const Json& latency = window.at("latency"); !latency.is_null()) outcome.latency_s = latency.at("p95_s");
  const std::string recording = attempt.folder + "/recording.json";
  if (fs::exists(recording)) outcome.recording = recording_from_json(read_text_file(recording, largest_file));
  outcome.all_failed = attempt.report.at("items").at("ok") == 0;
  outcome.ok = outcome.pictures_per_s > 0 && !outcome.all_failed;
  return outcome;
}

std::string Agreement::text() const {
  if (pairs < fewest_pairs)
    return "too few objects to compare (" + std::to_string(pairs) + " of at least " + std::to_string(fewest_pairs) +
           ")";
  return format("compared with the defaults: mean IoU %.4f, 1st percentile %.3f, other or missing objects %.1f %%",
                mean_iou, p1_iou, 100 * lone_objects);
}

Agreement agreement(const std::string& defaults, const std::string& other) {
  const ResultsComparison found = compare_results(defaults, other, 0);
  Agreement it;
  const auto all = static_cast<double>(found.objects_first + found.objects_second);
  if (all <= 0) return it;
  it.pairs = found.pairs;
  // An object that has another class now is a loss too.
  it.lone_objects = (all - 2 * static_cast<double>(found.pairs - found.other_classes)) / all;
  if (found.pairs > 0) {
    it.mean_iou = found.ious.mean();
    it.p1_iou = found.ious.quantile(0.01);
  }
  it.good = it.pairs >= fewest_pairs && found.failed_only_first + found.failed_only_second == 0 &&
            it.mean_iou >= lowest_mean_iou && it.p1_iou >= lowest_p1_iou && it.lone_objects <= most_lone_objects;
  return it;
}

}  // namespace millrace
