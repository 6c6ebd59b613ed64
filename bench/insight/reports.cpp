// Makes reports of five simulated runs, for readers who then explain them.
//
//     bench_reports --out FOLDER
//
// The program says how many verdicts are right. Each run has a folder that `millrace report` reads. truth.json has the real gain of each change, from more
// simulations. A reader's explanation is right if it names a change near the best one.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/json.hpp"
#include "bench/insight/options.hpp"
#include "pipeline/simulation.hpp"
#include "pipeline/verdict.hpp"
#include "pipeline/what_if.hpp"
#include "run/recording.hpp"
#include "run/report.hpp"
#include "run/report_verdict.hpp"
#include "run/resolve.hpp"

namespace millrace {
namespace {

using Change = std::function<void(PipelineModel&)>;

/// A usual pipeline on `cores` cores, with nothing special.
PipelineModel usual(double cores) {
  PipelineModel p;
  p.cores = cores;
  p.frames = 600;
  p.workers = 2;
  p.lanes = 2;
  p.read.mean = {0.0001, 1, 0, 0.002};
  p.frame_stages = {{"decode", {0.02}}};
  p.lane_stages = {{"preprocess", {0.002}}, {"detect", {0.03}}, {"segment", {0.12}}, {"postprocess", {0.003}}};
  p.batch_stages = {{"encode", {0.008}}};
  p.commit.mean = {0.0002, 1, 0, 0.0005};
  return p;
}

/// On a GPU: `launch_s` and `kernels_s` are of `segment`, for a batch of eight.
PipelineModel on_gpu(double launch_s, double kernels_s) {
  PipelineModel p = usual(8);
  p.batch = 8;
  p.admission = 96;
  p.frames = 4800;
  p.workers = 8;
  p.frame_stages.front().mean.core_s = 0.008;
  p.lane_stages = {{"preprocess", {0.001}},
                   {"detect", {0.001, 1, kernels_s / 5, 0, launch_s / 5}},
                   {"segment", {0.002, 1, kernels_s, 0, launch_s}},
                   {"postprocess", {0.001}}};
  p.batch_stages = {{"encode", {0.03}}};
  return p;
}

std::vector<PipelineModel> pipelines() {
  std::vector<PipelineModel> all(5);
  all[0] = usual(8);
  all[0].batch_stages.front().mean.core_s = 0.25;  // masks of many objects, and few workers
  all[0].workers = 1;
  all[1] = usual(2);
  all[1].others = 4;
  all[2] = usual(8);
  all[2].admission = 2;
  all[2].lanes = 4;
  all[2].read.mean.wait_s = 0.3;  // a slow network disk
  all[3] = on_gpu(0.04, 0.01);
  all[4] = on_gpu(0.004, 0.05);
  return all;
}

double gain(const PipelineModel& p, double rate, const Change& change) {
  PipelineModel changed = p;
  change(changed);
  return simulate(changed).frames_per_s / rate - 1;
}

nlohmann::json truth(const PipelineModel& p, double rate) {
  nlohmann::json all;
  const auto half = [](Cost& cost) {
    for (double* part : {&cost.core_s, &cost.device_s, &cost.launch_s, &cost.wait_s}) *part /= 2;
  };
  all["read twice as fast"] = gain(p, rate, [&](PipelineModel& it) { half(it.read.mean); });
  all["decode twice as fast"] = gain(p, rate, [&](PipelineModel& it) { half(it.frame_stages[0].mean); });
  for (std::size_t i = 0; i < p.lane_stages.size(); ++i)
    all[p.lane_stages[i].name + " twice as fast"] =
        gain(p, rate, [&](PipelineModel& it) { half(it.lane_stages[i].mean); });
  all["encode twice as fast"] = gain(p, rate, [&](PipelineModel& it) { half(it.batch_stages[0].mean); });
  all["kernels of segment twice as fast"] =
      gain(p, rate, [](PipelineModel& it) { it.lane_stages[2].mean.device_s /= 2; });
  all["launches of segment twice as fast"] =
      gain(p, rate, [](PipelineModel& it) { it.lane_stages[2].mean.launch_s /= 2; });
  all["twice the cores"] = gain(p, rate, [](PipelineModel& it) { it.cores *= 2; });
  all["twice the workers"] = gain(p, rate, [](PipelineModel& it) { it.workers *= 2; });
  all["twice the lanes"] = gain(p, rate, [](PipelineModel& it) { it.lanes *= 2; });
  all["four times gate.frames"] = gain(p, rate, [](PipelineModel& it) { it.admission *= 4; });
  all["no other programs"] = gain(p, rate, [](PipelineModel& it) { it.others = 0; });
  return all;
}

/// Whether the part that the verdict names brings most, of the parts that a verdict can name.
bool names_the_best(const Verdict& verdict, const nlohmann::json& gains) {
  const std::map<std::string, std::string> changes{{"other programs", "no other programs"},
                                                   {"cores", "twice the cores"},
                                                   {"gate", "four times gate.frames"},
                                                   {"segment kernels", "kernels of segment twice as fast"}};
  const std::string part = named(verdict);
  const auto change = changes.find(part);
  const std::string text = change != changes.end() ? change->second : part + " twice as fast";
  double best = 0;
  for (const auto& [key, gain] : gains.items()) {
    // Verdicts name no numbers of threads, and launches only as a reason.
    if (key == "twice the workers" || key == "twice the lanes" || key.starts_with("launches")) continue;
    best = std::max(best, gain.get<double>());
  }
  return gains.contains(text) && 1 + gains.at(text).get<double>() >= 0.95 * (1 + best);
}

RunReport report_of(const PipelineModel& p, const Outcome& outcome, const std::string& name) {
  RunReport report;
  report.run = name;
  report.started = "2026-01-01T00:00:00Z";
  report.state = "finished";
  report.planned = report.counts.items = report.counts.ok = p.frames;
  report.plan_complete = true;
  report.batch_size = p.batch;
  report.window = outcome.finished - outcome.begun;
  if (const auto recording = recording_of(report.window, {p.batch, 1, 0})) report.what_if = WhatIf(*recording).table();
  fill_verdict(report, outcome.begun, outcome.finished);  // as the program does
  return report;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) {
  using namespace millrace;
  const auto options = bench::options_of(argc, argv, {{"out", ""}});
  if (options.at("out").empty()) {
    std::cerr << "bench_reports: name a folder with --out\n";
    return 2;
  }
  const std::filesystem::path out = options.at("out");
  nlohmann::json truths;
  int number = 0, right = 0;
  for (const PipelineModel& pipeline : pipelines()) {
    const std::string name = "20260101T000000Z-1";
    const auto folder = out / ("run" + std::to_string(++number)) / "runs" / name;
    std::filesystem::create_directories(folder);
    const Outcome outcome = simulate(pipeline);
    const RunReport report = report_of(pipeline, outcome, name);
    std::ofstream file(folder / "report.json");
    file << to_json(report).dump(1) << "\n";
    const nlohmann::json gains = truth(pipeline, outcome.frames_per_s);
    if (names_the_best(report.verdict, gains)) ++right;
    truths["run" + std::to_string(number)] = {{"pictures_per_s", outcome.frames_per_s}, {"gains", gains}};
    if (!file.flush()) throw std::runtime_error("cannot write to " + folder.string());
  }
  std::ofstream file(out / "truth.json");
  file << truths.dump(1) << "\n";
  if (!file.flush()) throw std::runtime_error("cannot write to " + out.string());
  std::cout << number << " runs in " << out.string() << "; " << right << " of " << number
            << " verdicts name the best change\n";
  return 0;
}
