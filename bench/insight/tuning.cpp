// How good are the settings that the tuner finds, and in how few trials? Draws machines with models, simulates every
// point of a grid of settings on each, and compares the best one with that of the tuner.
//
//     bench_tuning [--machines N] [--seed S] [--trials N] [--within PERCENT] [--json]
//
// Each machine is tuned twice: for throughput, and for throughput under a bound of the latency. The tuner does not know
// the laws of a machine: costs of a call by its size, memory, contention. It sees rate, latency and recording of its
// trials, or that memory ran out.
//
// --within: exit code 1 if the rate of a machine is farther from the best one.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu.hpp"
#include "base/json.hpp"
#include "bench/insight/options.hpp"
#include "pipeline/simulation.hpp"
#include "pipeline/tuner.hpp"

namespace millrace {
namespace {

/// The cost of a model's call by its rows, which the tuner does not know.
struct CallLaw {
  double per_call_s = 0, per_row_s = 0;  ///< on the GPU, or on the cores of a CPU
  double alone = 0.2;                    ///< the part that only one thread of a team can do
  double best_rows = 8;                  ///< larger calls leave the caches
  double slower_beyond = 0.1;            ///< for each doubling beyond that

  [[nodiscard]] double seconds(double rows) const {
    const double doublings = std::max(std::log2(rows / best_rows), 0.0);
    return per_call_s + per_row_s * rows * (1 + slower_beyond * doublings);
  }
};

struct Machine {
  bool gpu = false;
  int cores = 2;
  double others = 0;
  double decode_s = 0.01, encode_s = 0.01, spread = 0.3;
  double boxes = 10;  ///< of a picture
  CallLaw detect, encoder, decoder;
  double bf16 = 1;         ///< times as fast as fp32
  double host_part = 0.1;  ///< of a GPU's call: what its thread computes
  double memory = 1, lane_memory = 0.1, picture_memory = 0.02, box_memory = 0.001;  ///< shares of all memory
  std::uint64_t seed = 1;
};

constexpr double run_noise = 0.02;  // standard deviation between equal runs

const std::vector<std::string> precisions{"fp32", "bf16"};

std::vector<std::string> numbers(std::initializer_list<int> values, int most) {
  std::vector<std::string> texts;
  for (const int value : values) {
    if (value <= most) texts.push_back(std::to_string(value));
  }
  return texts;
}

std::vector<Knob> knobs_of(const Machine& machine) {
  const int lanes = machine.gpu ? 6 : machine.cores, workers = std::max(2, machine.cores);
  return {{"batch.size", machine.gpu ? numbers({1, 4, 8, 16, 32}, 32) : numbers({1, 2, 4, 8}, 8), true, Doubts::batch,
           true},
          {"threads.lanes", numbers({1, 2, 3, 4, 6, 8, 16}, lanes), true, Doubts::lanes, true},
          {"threads.workers", numbers({1, 2, 4, 8, 16}, workers), true, Doubts::workers},
          {"gate.frames", numbers({16, 32, 64, 128, 256}, machine.gpu ? 256 : 64), true, Doubts::gate},
          {"segment.box_batch", numbers({16, 64, 256}, 256), false, Doubts::box_batch, true},
          {"device.precision", precisions, false, Doubts::precision, false, false}};
}

int value_of(const std::vector<Knob>& knobs, const TunerPoint& point, std::size_t knob) {
  return std::atoi(knobs[knob].values[point[knob]].c_str());
}

bool fits(const Machine& machine, int lanes, double batch, double box_batch) {
  const double lane = machine.lane_memory + machine.picture_memory * batch +
                      machine.box_memory * std::min(box_batch, machine.boxes * batch);
  return lane * lanes <= machine.memory;
}

/// As the program chooses them where nothing is set: as many lanes as fit. If one does not, it gets smaller batches.
TunerPoint defaults_of(const Machine& machine, const std::vector<Knob>& knobs) {
  const auto index = [&](std::size_t knob, int value) {
    const auto& values = knobs[knob].values;
    const auto it = std::ranges::find(values, std::to_string(value));
    return static_cast<std::size_t>(it == values.end() ? 0 : it - values.begin());
  };
  int batch = machine.gpu ? 16 : 1;
  while (batch > 1 && !fits(machine, 1, batch, 64)) batch = batch == 4 ? 1 : batch / 2;
  int lanes = machine.gpu ? 3 : std::min(machine.cores, 8);
  while (lanes > 1 && !fits(machine, lanes, batch, 64)) --lanes;
  return {index(0, batch),
          index(1, lanes),
          index(2, machine.gpu ? std::max(2, machine.cores) : std::max(1, machine.cores / 4)),
          index(3, machine.gpu ? 128
                   : lanes > 4 ? 32
                               : 16),
          index(4, 64),
          0};
}

bool allowed(const std::vector<Knob>& knobs, const TunerPoint& point) {
  return value_of(knobs, point, 3) >= 2 * value_of(knobs, point, 0);
}

struct Setup {
  int batch, lanes, workers, admission, box_batch;
  bool bf16;
};

Setup setup_of(const std::vector<Knob>& knobs, const TunerPoint& point) {
  return {value_of(knobs, point, 0), value_of(knobs, point, 1), value_of(knobs, point, 2),
          value_of(knobs, point, 3), value_of(knobs, point, 4), point[5] == 1};
}

bool fits(const Machine& machine, const Setup& setup) {
  return fits(machine, setup.lanes, setup.batch, setup.box_batch);
}

PipelineModel pipeline_of(const Machine& machine, const Setup& setup) {
  PipelineModel p;
  p.cores = machine.cores;
  p.others = machine.others;
  p.batch = setup.batch;
  p.lanes = setup.lanes;
  p.workers = setup.workers;
  p.admission = setup.admission;
  p.frames = std::max(20 * p.batch, 3 * p.admission) + 100;
  p.frames -= p.frames % p.batch;
  p.spread = machine.spread;
  p.seed = machine.seed;
  const int team = machine.gpu ? 1 : std::max(1, machine.cores / setup.lanes);
  p.worker_weight = machine.gpu || team > 1 ? 0.11 : 1;
  p.read.mean = {0.0001, 1, 0, 0.002};
  p.frame_stages = {{"decode", {machine.decode_s}}};
  const auto call = [&](const char* name, double calls, double rows, const CallLaw& law) {
    const double whole_s = calls * law.seconds(rows) / (setup.bf16 ? machine.bf16 : 1);
    Cost cost;
    if (machine.gpu) {
      cost = {machine.host_part * calls * law.per_call_s + 0.02 * whole_s, 1, whole_s};
    } else {
      cost = {whole_s, 1 / (law.alone + (1 - law.alone) / team)};
    }
    p.lane_stages.push_back({name, cost});
  };
  const double boxes = machine.boxes * setup.batch, calls = std::ceil(boxes / setup.box_batch);
  call("detect", 1, setup.batch, machine.detect);
  call("encoder", 1, setup.batch, machine.encoder);
  call("decoder", calls, boxes / calls, machine.decoder);
  p.batch_stages = {{"encode", {machine.encode_s * setup.batch}}};
  p.commit.mean = {0.0002 * setup.batch, 1, 0, 0.0005};
  return p;
}

Machine drawn_machine(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto uniform = [&](double low, double high) { return std::uniform_real_distribution(low, high)(random); };
  const auto between = [&](double low, double high) { return low * std::exp(uniform(0, 1) * std::log(high / low)); };
  const auto one_of = [&](std::initializer_list<int> values) {
    return values.begin()[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
  };
  Machine m;
  m.seed = seed;
  m.gpu = uniform(0, 1) < 0.5;
  m.cores = m.gpu ? one_of({4, 8, 16}) : one_of({1, 2, 4, 8, 16});
  m.others = uniform(0, 1) < 0.7 ? 0 : std::floor(uniform(1, m.cores));
  m.decode_s = between(0.003, 0.04);
  m.encode_s = between(0.001, 0.02);
  m.spread = between(0.1, 0.6);
  m.boxes = between(2, 40);
  m.host_part = between(0.1, 1);
  const auto law = [&](double per_row_s) {
    CallLaw it;
    it.per_row_s = per_row_s * (m.gpu ? 0.05 : 1);
    it.per_call_s = it.per_row_s * (m.gpu ? between(0.5, 8) : between(0.01, 0.5));
    it.alone = between(0.05, 0.5);
    it.best_rows = one_of({2, 4, 8, 16, 32});
    it.slower_beyond = between(0.01, 0.3);
    return it;
  };
  m.detect = law(between(0.01, 0.1));
  m.encoder = law(between(0.05, 0.5));
  m.decoder = law(between(0.003, 0.03));
  m.decoder.best_rows *= 8;
  m.bf16 = between(0.9, 2.5);
  m.lane_memory = between(0.02, 0.2);
  m.picture_memory = between(0.002, 0.05);
  m.box_memory = between(0.00002, 0.002);
  return m;
}

struct Measured {
  double frames_per_s = 0, latency_s = 0;
};

struct Tuned {
  Measured start, best, found;
  std::vector<std::string> best_values, found_values;
  std::size_t grid = 0, fitting = 0;
  std::size_t trials = 0, out_of_memory = 0;
  [[nodiscard]] double of_best() const { return best.frames_per_s > 0 ? found.frames_per_s / best.frames_per_s : 1; }
};

std::vector<std::string> values_of(const std::vector<Knob>& knobs, const TunerPoint& point) {
  std::vector<std::string> values;
  for (std::size_t i = 0; i < knobs.size(); ++i) values.push_back(knobs[i].option + "=" + knobs[i].values[point[i]]);
  return values;
}

/// Every point of the grid that fits, with its figures.
std::vector<std::pair<TunerPoint, Measured>> whole_grid(const Machine& machine, const std::vector<Knob>& knobs) {
  std::vector<std::pair<TunerPoint, Measured>> all;
  TunerPoint point(knobs.size(), 0);
  for (;;) {
    if (allowed(knobs, point)) {
      Measured measured;
      if (fits(machine, setup_of(knobs, point))) {
        const Outcome outcome = simulate(pipeline_of(machine, setup_of(knobs, point)));
        measured = {outcome.frames_per_s, (outcome.finished - outcome.begun).latency.quantile_ns(0.95) / 1e9};
      }
      all.emplace_back(point, measured);
    }
    std::size_t knob = 0;
    while (knob < knobs.size() && ++point[knob] == knobs[knob].values.size()) point[knob++] = 0;
    if (knob == knobs.size()) return all;
  }
}

Tuned tuned(const Machine& machine, const std::vector<std::pair<TunerPoint, Measured>>& grid,
            std::optional<double> most_latency_s, std::size_t trials) {
  const std::vector<Knob> knobs = knobs_of(machine);
  Tuned result;
  for (const auto& [point, measured] : grid) {
    ++result.grid;
    if (measured.frames_per_s <= 0) continue;
    ++result.fitting;
    const bool keeps = !most_latency_s || measured.latency_s <= *most_latency_s;
    if (!keeps || measured.frames_per_s <= result.best.frames_per_s) continue;
    result.best = measured;
    result.best_values = values_of(knobs, point);
  }
  Tuner tuner(knobs, defaults_of(machine, knobs), most_latency_s,
              [&](const TunerPoint& point) { return allowed(knobs, point); });
  std::mt19937_64 random(machine.seed);
  std::normal_distribution<double> between_runs(1, run_noise);
  while (tuner.trials().size() < trials) {
    const auto point = tuner.propose();
    if (!point) break;
    const Setup setup = setup_of(knobs, *point);
    if (!fits(machine, setup)) {
      tuner.add({*point, false});
      ++result.out_of_memory;
      continue;
    }
    const PipelineModel pipeline = pipeline_of(machine, setup);
    const Outcome outcome = simulate(pipeline);
    const Snapshot window = outcome.finished - outcome.begun;
    const int team = machine.gpu ? 1 : std::max(1, machine.cores / setup.lanes);
    const int nice = pipeline.worker_weight < 1 ? 10 : 0;
    tuner.add({*point, true, true, outcome.frames_per_s * between_runs(random), window.latency.quantile_ns(0.95) / 1e9,
               recording_of(window, {setup.batch, team, nice})});
  }
  result.trials = tuner.trials().size();
  const Trial& first = tuner.trials().front();
  result.start = {first.frames_per_s, first.latency_s};
  if (const Trial* found = tuner.best()) {
    // Without the noise.
    const auto exact = std::ranges::find(grid, found->point, &std::pair<TunerPoint, Measured>::first);
    result.found = exact->second;
    result.found_values = values_of(knobs, found->point);
  }
  return result;
}

nlohmann::json to_json(const Tuned& it) {
  return {{"grid", it.grid},
          {"fitting", it.fitting},
          {"trials", it.trials},
          {"out_of_memory", it.out_of_memory},
          {"start_pictures_per_s", it.start.frames_per_s},
          {"found_pictures_per_s", it.found.frames_per_s},
          {"best_pictures_per_s", it.best.frames_per_s},
          {"of_best", it.of_best()},
          {"found", it.found_values},
          {"best", it.best_values}};
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  const auto options =
      bench::options_of(argc, argv, {{"machines", "20"}, {"seed", "1"}, {"trials", "12"}, {"within", "100"}});
  const auto machines = static_cast<int>(bench::number(options, "machines"));
  const auto seed = static_cast<std::uint64_t>(bench::number(options, "seed"));
  const auto trials = static_cast<std::size_t>(bench::number(options, "trials"));
  const double within = bench::number(options, "within");
  const bool as_json = options.count("json") > 0;
  // The latency bound lies between that of the defaults and the lowest of the grid. So it is possible, and mostly binds.
  const auto bound_of = [](const std::vector<std::pair<TunerPoint, Measured>>& grid, double of_defaults) {
    double lowest = of_defaults;
    for (const auto& [point, measured] : grid) {
      if (measured.frames_per_s > 0) lowest = std::min(lowest, measured.latency_s);
    }
    return std::max(std::sqrt(lowest * of_defaults), 1.1 * lowest);
  };
  nlohmann::json all = nlohmann::json::array();
  double worst = 1;
  std::size_t missed = 0, tunings = 0;
  for (int i = 0; i < machines; ++i) {
    const Machine machine = drawn_machine(seed + static_cast<std::uint64_t>(i));
    const auto grid = whole_grid(machine, knobs_of(machine));
    const Tuned rate = tuned(machine, grid, std::nullopt, trials);
    const double bound = bound_of(grid, rate.start.latency_s > 0 ? rate.start.latency_s : 1);
    const Tuned bounded = tuned(machine, grid, bound, trials);
    for (const Tuned* it : {&rate, &bounded}) {
      ++tunings;
      worst = std::min(worst, it->of_best());
      if (it->of_best() < 1 - within / 100) ++missed;
    }
    all.push_back({{"seed", machine.seed},
                   {"gpu", machine.gpu},
                   {"cores", machine.cores},
                   {"throughput", to_json(rate)},
                   {"latency_bound_s", bound},
                   {"latency", to_json(bounded)}});
    if (as_json) continue;
    const auto line = [](const char* goal, const Tuned& it) {
      std::cout << "  " << goal << ": " << 100 * it.of_best() << " % of the best of " << it.fitting << " points, after "
                << it.trials << " trials (" << it.out_of_memory << " out of memory); defaults "
                << 100 * it.start.frames_per_s / std::max(it.best.frames_per_s, 1e-9) << " %\n";
    };
    std::cout << "machine " << machine.seed << ": " << machine.cores << " cores" << (machine.gpu ? ", GPU" : "")
              << "\n";
    line("throughput", rate);
    line("latency", bounded);
  }
  if (as_json) {
    std::cout << nlohmann::json{{"cpu", cpu_name()},     {"instructions", cpu_features()},
                                {"machines", machines},  {"first_seed", seed},
                                {"most_trials", trials}, {"worst_of_best", worst},
                                {"missed", missed},      {"results", all}}
                     .dump(1)
              << "\n";
  } else {
    std::cout << "worst: " << 100 * worst << " % of the best point; " << missed << " of " << tunings << " beyond "
              << within << " %\n";
  }
  return missed > 0 ? 1 : 0;
}
