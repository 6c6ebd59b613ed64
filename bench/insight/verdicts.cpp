// How often is the verdict right? Draws pipelines, simulates them, and compares the verdict with the truth.
//
//     bench_verdicts [--pipelines N] [--seed S] [--minimum PERCENT] [--planted wall|events|cores|launches] [--json]
//
// The truth comes from more simulations. Each changes one thing: a stage twice as fast, twice the cores,
// no other programs, twice the pictures in flight. The verdict is right if what it names is within 5 % of the
// best change. A verdict that names nothing is right if no change gains more than 5 %.
//
// --minimum: exit code 1 if a smaller part of the verdicts is right.
// --planted: a mistake in the evidence. Then the score must fall.
// - wall: time without a core counts as work.
// - events: the lanes get the sum of all lanes' times, as if events of a shared GPU were added up.
// - cores: the cores and the other programs are not looked at.
// - launches: the time in which a GPU waits for launches counts as its work.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "base/cpu.hpp"
#include "base/json.hpp"
#include "bench/insight/drawn.hpp"
#include "bench/insight/options.hpp"
#include "pipeline/bounds.hpp"
#include "pipeline/simulation.hpp"
#include "pipeline/verdict.hpp"

namespace millrace {
namespace {

constexpr double tie = 0.05;

void speed_up(StageCosts& stage) {
  stage.mean.core_s /= 2;
  stage.mean.device_s /= 2;
  stage.mean.launch_s /= 2;
  stage.mean.wait_s /= 2;
}

/// The rate after each change, as a multiple of the rate today.
std::map<std::string, double> gains(const PipelineModel& p, double rate) {
  std::map<std::string, double> all;
  const auto with = [&](const std::string& name, const auto& change) {
    PipelineModel changed = p;
    change(changed);
    all[name] = simulate(changed).frames_per_s / rate;
  };
  with("input", [](PipelineModel& it) { speed_up(it.input); });
  with("read", [](PipelineModel& it) { speed_up(it.read); });
  with("commit", [](PipelineModel& it) { speed_up(it.commit); });
  for (std::size_t i = 0; i < p.frame_stages.size(); ++i)
    with(p.frame_stages[i].name, [i](PipelineModel& it) { speed_up(it.frame_stages[i]); });
  for (std::size_t i = 0; i < p.lane_stages.size(); ++i)
    with(p.lane_stages[i].name, [i](PipelineModel& it) { speed_up(it.lane_stages[i]); });
  for (std::size_t i = 0; i < p.lane_stages.size(); ++i) {
    if (p.lane_stages[i].mean.device_s > 0)
      with(p.lane_stages[i].name + " kernels", [i](PipelineModel& it) { it.lane_stages[i].mean.device_s /= 2; });
  }
  for (std::size_t i = 0; i < p.batch_stages.size(); ++i)
    with(p.batch_stages[i].name, [i](PipelineModel& it) { speed_up(it.batch_stages[i]); });
  with("cores", [](PipelineModel& it) { it.cores *= 2; });
  with("gate", [](PipelineModel& it) { it.admission *= 2; });
  if (p.others > 0) with("other programs", [](PipelineModel& it) { it.others = 0; });
  return all;
}

void plant(const std::string& mistake, Snapshot& window) {
  for (auto& resource : window.resources) {
    if (mistake == "wall") {
      resource.total.no_core_ns = 0;
      for (auto& part : resource.parts) part.no_core_ns = 0;
    } else if (mistake == "events" && resource.total.name == "lane") {
      resource.total.busy_ns *= std::max(resource.total.servers, 2);
    }
  }
  if (mistake == "launches") {
    for (auto& resource : window.resources) {
      for (auto& part : resource.parts) {
        const auto waits_ns = std::max<std::int64_t>(part.launch_ns - part.busy_ns, 0);
        part.busy_ns += waits_ns;
        resource.total.busy_ns += waits_ns;
      }
    }
  }
  if (mistake == "cores") {
    window.machine = {};
    window.cores = 0;
  }
}

/// The bounds that the verdict compared.
nlohmann::json estimates(const Snapshot& window) {
  nlohmann::json all;
  for (const Change& change : possible_changes(window).all) {
    const std::string name = change.kind == Change::Kind::cores     ? "cores"
                             : change.kind == Change::Kind::others  ? "other programs"
                             : change.kind == Change::Kind::credits ? "gate"
                                                                    : change.stage;
    all[name] = change.rate;
  }
  return all;
}

nlohmann::json text(const PipelineModel& p) {
  nlohmann::json stages;
  for (const auto* group : {&p.frame_stages, &p.lane_stages, &p.batch_stages}) {
    for (const auto& stage : *group)
      stages[stage.name] = {stage.mean.core_s, stage.mean.threads, stage.mean.device_s, stage.mean.launch_s};
  }
  stages["input"] = p.input.mean.wait_s;
  stages["read"] = p.read.mean.wait_s;
  stages["commit"] = p.commit.mean.wait_s;
  return {{"cores", p.cores}, {"others", p.others},   {"batch", p.batch},   {"gate", p.admission},
          {"lanes", p.lanes}, {"workers", p.workers}, {"spread", p.spread}, {"costs_s", stages}};
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  const auto options =
      bench::options_of(argc, argv, {{"pipelines", "180"}, {"seed", "1"}, {"minimum", "0"}, {"planted", ""}});
  const auto pipelines = static_cast<int>(bench::number(options, "pipelines"));
  const auto seed = static_cast<std::uint64_t>(bench::number(options, "seed"));
  const double minimum = bench::number(options, "minimum");
  const bool as_json = options.count("json") > 0;
  const std::string& mistake = options.at("planted");
  int right = 0;
  std::map<std::string, int> kinds;
  nlohmann::json wrong = nlohmann::json::array();
  for (int i = 0; i < pipelines; ++i) {
    const PipelineModel pipeline = drawn(seed + static_cast<std::uint64_t>(i));
    Outcome outcome = simulate(pipeline);
    plant(mistake, outcome.finished);
    const Verdict verdict = judge(outcome.begun, outcome.finished);
    const auto truth = gains(pipeline, outcome.frames_per_s);
    const auto best = std::ranges::max_element(truth, {}, [](const auto& it) { return it.second; });
    const std::string name = named(verdict);
    ++kinds[name.empty() ? "nothing" : name];
    const auto found = truth.find(name);
    if ((found == truth.end() ? 1 : found->second) >= (1 - tie) * best->second) {
      ++right;
      continue;
    }
    if (!mistake.empty()) continue;  // the mistake made them wrong, so they teach nothing
    wrong.push_back({{"seed", pipeline.seed},
                     {"named", name},
                     {"best", best->first},
                     {"rates", truth},
                     {"estimates", estimates(outcome.finished - outcome.begun)},
                     {"sentence", verdict.sentence},
                     {"pipeline", text(pipeline)}});
  }
  const auto percent = [&](int count) { return std::round(1000.0 * count / std::max(pipelines, 1)) / 10; };
  if (as_json) {
    const nlohmann::json all{{"cpu", cpu_name()},      {"instructions", cpu_features()},
                             {"pipelines", pipelines}, {"first_seed", seed},
                             {"planted", mistake},     {"right", right},
                             {"named", kinds},         {"wrong", wrong}};
    std::cout << all.dump(1) << "\n";
  } else {
    std::cout << "right: " << right << " of " << pipelines << " (" << percent(right) << " %)\n";
    for (const auto& [name, count] : kinds) std::cout << "  named " << name << ": " << count << "\n";
  }
  return percent(right) < minimum ? 1 : 0;
}
