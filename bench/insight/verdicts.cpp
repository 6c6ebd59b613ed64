// How often is the verdict right? Draws pipelines, simulates them, and compares the verdict with the truth.
//
//     bench_verdicts [--pipelines N] [--seed S] [--minimum PERCENT] [--planted wall|events|cores] [--json]
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
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "base/cpu.hpp"
#include "bench/insight/simulation.hpp"
#include "pipeline/verdict.hpp"

namespace millrace::insight {
namespace {

constexpr double tie = 0.05;

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}
  double between(double low, double high) { return low * std::exp(uniform() * std::log(high / low)); }
  int whole(int low, int high) { return std::uniform_int_distribution(low, high)(random_); }
  bool chance(double p) { return uniform() < p; }
  template <class Value>
  Value one_of(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(whole(0, static_cast<int>(values.size()) - 1))];
  }

 private:
  double uniform() { return std::uniform_real_distribution(0.0, 1.0)(random_); }
  std::mt19937_64 random_;
};

/// A pipeline as users have them: all models on the cores, or on devices that the lanes wait for.
Pipeline drawn(std::uint64_t seed) {
  Draw draw(seed);
  Pipeline p;
  p.seed = seed;
  p.cores = draw.one_of<int>({1, 2, 2, 4, 8, 16});
  const bool gpu = draw.chance(0.4);
  const auto cores = static_cast<int>(p.cores);
  p.batch = gpu ? draw.one_of<int>({4, 8, 16}) : 1;
  p.admission = draw.chance(0.1) ? 2 * p.batch : std::max(16, 6 * p.batch);
  p.lanes = gpu ? draw.whole(1, 3) : std::max(1, cores / 8);
  p.team = gpu ? 1 : std::min(cores, 8);
  p.workers = gpu ? cores : std::max(1, cores / 4);
  p.worker_weight = 0.11;  // ten nice levels
  p.frames = 40 * p.batch + 200;
  p.spread = draw.between(0.05, 1);
  p.others = draw.chance(0.5) ? 0 : draw.whole(1, 2 * cores);
  p.input.wait_s = draw.chance(0.1) ? draw.between(0.02, 0.3) : 0.0001;
  p.read.compute_s = 0.0001;
  p.read.wait_s = draw.chance(0.15) ? draw.between(0.05, 0.6) : draw.between(0.0005, 0.01);
  p.frame_stages = {{"decode", draw.between(0.003, 0.1), 0}};
  const double per_batch = p.batch;
  for (const char* name : {"preprocess", "detect", "segment", "postprocess"}) {
    const bool model = std::string(name) == "detect" || std::string(name) == "segment";
    const double cost = (model ? draw.between(0.01, 0.5) : draw.between(0.0005, 0.01)) * (gpu ? 0.1 : 1) * per_batch;
    p.lane_stages.push_back(gpu ? StageCost{name, 0.1 * cost, 0.9 * cost} : StageCost{name, cost, 0});
  }
  p.batch_stages = {{"encode", draw.between(0.001, 0.08) * per_batch, 0}};
  p.commit.compute_s = 0.0002 * per_batch;
  p.commit.wait_s = draw.chance(0.1) ? draw.between(0.02, 0.3) * per_batch : 0.0005;
  return p;
}

void speed_up(StageCost& stage) {
  stage.compute_s /= 2;
  stage.wait_s /= 2;
}

/// The rate after each change, as a multiple of the rate today.
std::map<std::string, double> gains(const Pipeline& p, double rate) {
  std::map<std::string, double> all;
  const auto with = [&](const std::string& name, const auto& change) {
    Pipeline changed = p;
    change(changed);
    all[name] = simulate(changed).frames_per_s / rate;
  };
  with("input", [](Pipeline& it) { speed_up(it.input); });
  with("read", [](Pipeline& it) { speed_up(it.read); });
  with("commit", [](Pipeline& it) { speed_up(it.commit); });
  for (std::size_t i = 0; i < p.frame_stages.size(); ++i)
    with(p.frame_stages[i].name, [i](Pipeline& it) { speed_up(it.frame_stages[i]); });
  for (std::size_t i = 0; i < p.lane_stages.size(); ++i)
    with(p.lane_stages[i].name, [i](Pipeline& it) { speed_up(it.lane_stages[i]); });
  for (std::size_t i = 0; i < p.batch_stages.size(); ++i)
    with(p.batch_stages[i].name, [i](Pipeline& it) { speed_up(it.batch_stages[i]); });
  with("cores", [](Pipeline& it) { it.cores *= 2; });
  with("gate", [](Pipeline& it) { it.admission *= 2; });
  if (p.others > 0) with("other programs", [](Pipeline& it) { it.others = 0; });
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
  if (mistake == "cores") {
    window.machine = {};
    window.cores = 0;
  }
}

nlohmann::json text(const Pipeline& p) {
  nlohmann::json stages;
  for (const auto* group : {&p.frame_stages, &p.lane_stages, &p.batch_stages}) {
    for (const auto& stage : *group) stages[stage.name] = {stage.compute_s, stage.wait_s};
  }
  stages["input"] = p.input.wait_s;
  stages["read"] = p.read.wait_s;
  stages["commit"] = p.commit.wait_s;
  return {{"cores", p.cores}, {"others", p.others},   {"batch", p.batch},   {"gate", p.admission}, {"lanes", p.lanes},
          {"team", p.team},   {"workers", p.workers}, {"spread", p.spread}, {"costs_s", stages}};
}

}  // namespace
}  // namespace millrace::insight

int main(int argc, char** argv) {
  using namespace millrace;
  using namespace millrace::insight;
  int pipelines = 180;
  std::uint64_t seed = 1;
  double minimum = 0;
  bool as_json = false;
  std::string mistake;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool value = i + 1 < argc;
    if (word == "--json") {
      as_json = true;
    } else if (word == "--minimum" && value) {
      minimum = std::atof(argv[++i]);
    } else if (word == "--pipelines" && value) {
      pipelines = std::atoi(argv[++i]);
    } else if (word == "--seed" && value) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--planted" && value) {
      mistake = argv[++i];
    } else {
      std::cerr << "usage: bench_verdicts [--pipelines N] [--seed S] [--minimum PERCENT] [--planted wall|events|cores] "
                   "[--json]\n";
      return 2;
    }
  }
  int right = 0;
  std::map<std::string, int> kinds;
  nlohmann::json wrong = nlohmann::json::array();
  for (int i = 0; i < pipelines; ++i) {
    const Pipeline pipeline = drawn(seed + static_cast<std::uint64_t>(i));
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
    wrong.push_back({{"seed", pipeline.seed},
                     {"named", name},
                     {"best", best->first},
                     {"rates", truth},
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
