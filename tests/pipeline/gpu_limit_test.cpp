// What limits a GPU, from the times of its calls and of their launches.
#include "pipeline/gpu_limit.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "pipeline/bounds.hpp"
#include "pipeline/simulation.hpp"
#include "pipeline/verdict.hpp"
#include "tests/pipeline/windows.hpp"

namespace millrace {
namespace {

using namespace windows;

ResourceReading gpu_of(double encoder_s, double encoder_launch_s, double decoder_s, double decoder_launch_s) {
  ResourceReading gpu{reading("GPU", 1, encoder_s + decoder_s),
                      {reading("encoder", 1, encoder_s), reading("decoder", 1, decoder_s)}};
  gpu.parts[0].launch_ns = seconds(encoder_launch_s);
  gpu.parts[1].launch_ns = seconds(decoder_launch_s);
  gpu.total.launch_ns = seconds(encoder_launch_s + decoder_launch_s);
  gpu.waited_for_by_lanes = true;
  return gpu;
}

/// lane_bound(), with lanes that use this GPU.
Snapshot with(const ResourceReading& gpu) {
  Snapshot window = lane_bound();
  window.resources.push_back(gpu);
  return window;
}

bool says(const Verdict& verdict, const std::string& text) { return verdict.sentence.find(text) != std::string::npos; }

TEST_CASE("without a GPU, or without times of launches, nothing is known") {
  CHECK(gpu_limit(lane_bound(), "encoder").kind == GpuLimit::Kind::unknown);
  CHECK(gpu_limit(with(gpu_of(6, 0, 3, 0)), "encoder").kind == GpuLimit::Kind::unknown);
  CHECK(to_string(GpuLimit::Kind::unknown).empty());
}

TEST_CASE("a GPU whose calls take longer than their launches is compute-bound") {
  const Verdict verdict = judge({}, with(gpu_of(7, 0.7, 2.4, 1.2)));
  CHECK(verdict.stage == "encoder");
  CHECK(verdict.resource == "GPU");
  CHECK(verdict.gpu.kind == GpuLimit::Kind::compute_bound);
  CHECK(verdict.gpu.launch == doctest::Approx(0.1));
  CHECK(!verdict.gpu.heat);
  CHECK(says(verdict, "The GPU is compute-bound: launching kernels takes 10 % of the time that they run."));
}

TEST_CASE("a GPU whose kernels run for less time than their launches take does not limit the run; the lanes do") {
  const Verdict verdict = judge({}, with(gpu_of(2.5, 6, 1.5, 3)));
  CHECK(verdict.resource == "lane");
  CHECK(verdict.stage == "detect");
  CHECK(verdict.gpu.kind == GpuLimit::Kind::launch_bound);
  CHECK(verdict.gpu.launch == doctest::Approx(9.0 / 4));
  CHECK(says(verdict,
             "The GPU is launch-bound: launching kernels takes 2.3 times as long as they run. "
             "Compiled models and larger batches need fewer launches; more lanes launch at the same time."));
}

TEST_CASE("kernels fill a GPU, and their launches take longer: the whole stage is named") {
  Snapshot window = with(gpu_of(7, 9, 2.4, 3));
  for (Reading& part : window.resources.back().parts) part.stage = "segment";
  // Several lanes launch at the same time, so the GPU is full. Without core times, nothing else is known.
  CHECK(judge({}, window).stage == "encoder");
  auto& lane = window.resources[2];
  for (Reading* it : {&lane.total, &lane.parts[0], &lane.parts[1], &lane.parts[2]}) {
    it->measured_ns = it->busy_ns;
    it->on_core_ns = it->core_ns = it->busy_ns / 2;
  }
  const Verdict verdict = judge({}, window);
  CHECK(verdict.stage == "segment");
  CHECK(verdict.resource == "lane");
  CHECK(verdict.gpu.kind == GpuLimit::Kind::launch_bound);
}

TEST_CASE("lanes that wait for a full GPU limit the rate only by what they compute") {
  Snapshot window = with(gpu_of(7, 0.5, 2.4, 0.5));
  auto& lane = window.resources[2];
  for (Reading* it : {&lane.total, &lane.parts[0], &lane.parts[1], &lane.parts[2]}) {
    it->measured_ns = it->busy_ns;
    it->on_core_ns = it->core_ns = 8 * it->busy_ns / 10;
  }
  const auto changes = possible_changes(window).all;
  const auto encoder = std::ranges::find(changes, "encoder", &Change::stage);
  REQUIRE(encoder != changes.end());
  // The lanes compute 0.8 of 29.1 s, in 3 lanes and 10 s. Half of the encoder alone would allow 10 / 5.9.
  CHECK(encoder->rate == doctest::Approx(30 / (0.8 * 29.1)).epsilon(0.001));
}

/// Lanes as on an H200: `segment` only launches its kernels, and `postprocess` waits for them.
Snapshot waiting_in_postprocess() {
  Snapshot window = with(gpu_of(6, 1, 2, 0.5));
  window.resources.back().parts[0].stage = window.resources.back().parts[1].stage = "segment";
  window.resources[2] = {reading("lane", 1, 9.5), {reading("segment", 1, 1.5), reading("postprocess", 1, 8)}, true};
  for (Reading& part : window.resources[2].parts) {
    part.measured_ns = part.busy_ns;
    part.on_core_ns = part.core_ns = seconds(0.5);
  }
  return window;
}

/// Copies of `preprocess` to a GPU.
ResourceReading uploads(double busy_s) {
  ResourceReading copies{reading("GPU uploads", 1, busy_s), {reading("preprocess uploads", 1, busy_s)}, false, true};
  copies.parts[0].stage = "preprocess";
  copies.copies = true;
  return copies;
}

TEST_CASE("a run bound by copies names them, also if kernels take much of the time too") {
  Snapshot window = with(gpu_of(4, 0.4, 2.5, 0.3));
  window.resources.push_back(uploads(9.5));
  Verdict verdict = judge({}, window);
  CHECK(verdict.stage == "preprocess uploads");
  CHECK(verdict.resource == "GPU uploads");
  CHECK(verdict.gpu.kind == GpuLimit::Kind::unknown);
  CHECK(verdict.gain == doctest::Approx(10 / 7.3 - 1).epsilon(0.001));
  CHECK(
      verdict.sentence ==
      "`preprocess uploads` holds the run back: the GPU uploads were busy 95 % of the time. These are times of copies "
      "alone, and the lanes wait for them. The source had no credits 90 % of the time. Runner-up: the workers (mostly "
      "`decode`) at 73 %. If `preprocess uploads` were twice as fast, the run would gain at most 37 %: then `decode` "
      "is "
      "the limit.");
  window.resources.back() = uploads(10.2);
  CHECK(says(judge({}, window),
             "the GPU uploads were busy all the time: one after another, they would take 102 % of it"));
}

TEST_CASE("copies run while kernels do: only one of them can fill its part of a GPU") {
  Snapshot window = with(gpu_of(5, 0.4, 1, 0.3));
  window.resources.push_back(uploads(6));
  CHECK_FALSE(gpu_is_full(window));
  CHECK(judge({}, window).resource == "lane");
  window = with(gpu_of(7, 0.4, 2.4, 0.3));
  window.resources.insert(window.resources.begin(), uploads(6));
  const Verdict verdict = judge({}, window);
  CHECK(verdict.stage == "encoder");
  CHECK(verdict.gpu.kind == GpuLimit::Kind::compute_bound);
  CHECK(says(verdict, "These are times of kernels alone"));
}

TEST_CASE("a stage that waits for the kernels of another one is not blamed for them") {
  const Snapshot window = with_waits_of_kernels(waiting_in_postprocess());
  const auto& parts = window.resources[2].parts;
  CHECK(parts[0].busy_ns == seconds(9));
  CHECK(parts[0].measured_ns == seconds(9));
  CHECK(parts[1].busy_ns == seconds(0.5));
  const Verdict verdict = judge({}, waiting_in_postprocess());
  CHECK(verdict.stage == "segment");
  CHECK(verdict.resource == "lane");
  CHECK(says(verdict, "of that time: segment 95 %, postprocess 5 %"));
}

TEST_CASE("a stage is blamed for the waits for its copies") {
  Snapshot window = waiting_in_postprocess();
  auto& parts = window.resources[2].parts;
  parts.insert(parts.begin(), reading("preprocess", 1, 0));
  window.resources.push_back(uploads(2));
  // Lanes wait for 8.5 s: for 8 s of kernels, and 2 s of copies.
  const Snapshot moved = with_waits_of_kernels(window);
  CHECK(moved.resources[2].parts[0].busy_ns == seconds(8.5 * 2 / 10));
  CHECK(moved.resources[2].parts[1].busy_ns == seconds(0.5 + 8.5 * 8 / 10));
}

TEST_CASE("without core times, or without the stages of all kernels, waits stay where they were measured") {
  Snapshot window = waiting_in_postprocess();
  window.resources.back().parts[1].stage = "";
  CHECK(with_waits_of_kernels(window).resources[2].parts[1].busy_ns == seconds(8));
  CHECK(kernels_of(window.resources.back(), {"segment", "postprocess"}).empty());
  window = waiting_in_postprocess();
  window.resources[2].parts[0].measured_ns = 0;
  CHECK(with_waits_of_kernels(window).resources[2].parts[1].busy_ns == seconds(8));
}

TEST_CASE("the verdict speaks of the part that it names, even if other parts wait for launches") {
  const Verdict verdict = judge({}, with(gpu_of(9.2, 7.2, 1.2, 1.2)));
  CHECK(verdict.stage == "encoder");
  CHECK(verdict.gpu.kind == GpuLimit::Kind::compute_bound);
  CHECK(verdict.gpu.launch == doctest::Approx(7.2 / 9.2));
  // The GPU is not full, so the decoder's launches explain the lanes.
  const Verdict of_lanes = judge({}, with(gpu_of(3, 0.3, 4.5, 9)));
  CHECK(of_lanes.resource == "lane");
  CHECK(of_lanes.gpu.kind == GpuLimit::Kind::launch_bound);
  CHECK(of_lanes.gpu.launch == doctest::Approx(2));
}

TEST_CASE("launches that take little of the lanes' time do not explain them") {
  CHECK(judge({}, with(gpu_of(1, 0.9, 0.5, 0.5))).gpu.kind == GpuLimit::Kind::unknown);
}

TEST_CASE("a GPU that is not full limits what other changes bring") {
  // Twice the pictures in flight would fill the GPU, which is busy 80 % of the time.
  Snapshot window = with(gpu_of(6, 0.6, 2, 0.2));
  window.resources[2] = {reading("lane", 3, 15), {reading("detect", 3, 15)}};
  window.admission_items = 32;
  const auto changes = possible_changes(window).all;
  const auto credits = std::ranges::find(changes, Change::Kind::credits, &Change::kind);
  REQUIRE(credits != changes.end());
  CHECK(credits->rate == doctest::Approx(1 / 0.8).epsilon(0.001));
  CHECK(credits->then_binds == "encoder");
  // It is no candidate by itself, because lanes rarely wait for it.
  CHECK(std::ranges::find(changes, "GPU", &Change::resource) == changes.end());
}

TEST_CASE("a GPU that is not full is the runner-up at most") {
  // The lanes are busy, but wait for cores half of the time.
  Snapshot window = with(gpu_of(4, 0.4, 2, 0.2));
  window.cpu_ns = seconds(38);
  for (ResourceReading& it : window.resources) {
    if (it.waited_for_by_lanes) continue;
    for (Reading* one : {&it.total, it.parts.empty() ? &it.total : &it.parts[0]}) {
      one->measured_ns = one->busy_ns;
      one->no_core_ns = one->on_core_ns = one->core_ns = one->busy_ns / 2;
    }
  }
  const Verdict verdict = judge({}, window);
  CHECK(verdict.kind == Verdict::Kind::cores);
  CHECK(verdict.resource != "GPU");
  CHECK(verdict.runner_up == "encoder");
  CHECK(!verdict.then_binds.empty());
}

TEST_CASE("work that several stages share on a GPU never makes a bound too low") {
  Snapshot window = with(gpu_of(8, 0.8, 0.5, 0.05));
  std::string then_binds;
  const auto gain_of_detect = [&] {
    const auto changes = possible_changes(window).all;
    const auto detect = std::ranges::find(changes, "detect", &Change::stage);
    then_binds = detect->then_binds;
    return detect->rate;
  };
  window.resources[1].total.busy_ns = seconds(2);
  window.resources[1].parts = {};
  const double shared = gain_of_detect();
  window.resources.back().parts[0].stage = "detect";
  window.resources.back().parts[1].stage = "segment";
  const double own = gain_of_detect();
  CHECK(shared >= own);
  CHECK(own > 1.5);
  window.resources.back().parts[0].stage = "segment";
  CHECK(gain_of_detect() == doctest::Approx(10 / 8.5).epsilon(0.001));
  CHECK(then_binds == "encoder");
  // Its own work on the GPU is not another limit.
  window.resources.back() = gpu_of(6, 0.6, 1, 0.1);
  window.resources.back().parts[0].stage = window.resources.back().parts[1].stage = "detect";
  window.resources[2] = {reading("lane", 1, 7), {reading("detect", 1, 7)}};
  gain_of_detect();
  CHECK(then_binds == "detect");
}

TEST_CASE("a full GPU is named on full cores, too, if the system tells how long threads waited for them") {
  Snapshot window = with(gpu_of(7.5, 0.7, 2.4, 0.2));
  window.cpu_ns = seconds(37);
  CHECK(judge({}, window).kind == Verdict::Kind::cores);
  auto& workers = window.resources[1];
  workers.total.busy_ns = seconds(4);
  for (Reading* it : {&workers.total, &workers.parts[0], &workers.parts[1]}) {
    it->measured_ns = it->busy_ns;
    it->on_core_ns = it->core_ns = it->busy_ns;
  }
  CHECK(judge({}, window).stage == "encoder");
  CHECK(judge({}, window).kind == Verdict::Kind::stage);
}

TEST_CASE("work on a GPU takes no core") {
  Snapshot window = with(gpu_of(7.5, 0.7, 2.4, 0.2));
  window.cpu_ns = seconds(39);  // of 40: the cores are full
  const auto changes = possible_changes(window).all;
  const auto encoder = std::ranges::find(changes, "encoder", &Change::stage);
  REQUIRE(encoder != changes.end());
  CHECK(encoder->rate == doctest::Approx(40.0 / 39).epsilon(0.001));
  CHECK(encoder->then_binds == "cores");
}

TEST_CASE("if the cores would be the next limit, the whole stage is named instead of its work on the GPU") {
  Snapshot window = with(gpu_of(7.5, 0.7, 2.4, 0.2));
  window.resources.back().parts[0].stage = window.resources.back().parts[1].stage = "segment";
  window.resources[1].total.busy_ns = seconds(4);
  window.resources[1].parts[0].busy_ns = seconds(2);
  // Otherwise a part of the GPU is named, although the stage has another part that would gain too.
  const Verdict of_gpu = judge({}, window);
  CHECK(of_gpu.stage == "encoder");
  CHECK(of_gpu.gpu.kind == GpuLimit::Kind::compute_bound);
  window.cpu_ns = seconds(30);
  auto& lane = window.resources[2];
  for (Reading* it : {&lane.total, &lane.parts[0], &lane.parts[1], &lane.parts[2]}) {
    it->measured_ns = it->busy_ns;
    it->on_core_ns = it->core_ns = it->busy_ns / 2;
  }
  lane.parts[2].core_ns = seconds(15);
  const Verdict verdict = judge({}, window);
  CHECK(verdict.resource == "lane");
  CHECK(verdict.stage == "segment");
  CHECK(verdict.runner_up == "encoder");
  // Without core times, waiting for the GPU would look like work.
  lane.parts[2].measured_ns = 0;
  CHECK(judge({}, window).stage == "encoder");
}

TEST_CASE("a full GPU with a lower clock is throttled, and the verdict says why") {
  Snapshot begun;
  begun.machine.gpu_heat_ns = begun.machine.gpu_power_ns = 0;
  Snapshot window = with(gpu_of(7, 0.7, 2.4, 1.2));
  window.machine.gpu_heat_ns = seconds(4.5);
  window.machine.gpu_power_ns = seconds(1);
  Verdict verdict = judge(begun, window);
  CHECK(verdict.gpu.kind == GpuLimit::Kind::throttled);
  CHECK(verdict.stage == "encoder");
  CHECK(says(verdict, "The GPU is throttled: heat lowered its clock 45 % of the time. Cool it better."));
  window.machine.gpu_power_ns = seconds(8);
  CHECK(says(judge(begun, window), "The GPU is throttled: its power limit lowered its clock 80 % of the time."));
  // For a moment, that means nothing.
  window.machine.gpu_heat_ns = window.machine.gpu_power_ns = seconds(1);
  verdict = judge(begun, window);
  CHECK(verdict.gpu.kind == GpuLimit::Kind::compute_bound);
  CHECK(*verdict.gpu.heat == doctest::Approx(0.1));
}

/// Lanes that launch for a second per batch, and kernels that take `kernels_s`.
PipelineModel launching(double kernels_s, int lanes) {
  PipelineModel model;
  model.spread = 0;
  model.cores = 4;
  model.lanes = lanes;
  model.frames = 200;
  model.frame_stages = {{"decode", {0.001}}};
  model.lane_stages = {{"segment", {0, 1, kernels_s, 0, 1}}};
  model.batch_stages = {{"encode", {0.001}}};
  return model;
}

TEST_CASE("the simulation: kernels run while the host launches the next") {
  CHECK(simulate(launching(0.2, 1)).frames_per_s == doctest::Approx(1).epsilon(0.02));
  CHECK(simulate(launching(0.1, 2)).frames_per_s == doctest::Approx(2).epsilon(0.02));
  // The GPU has work for 2 s. Launching hides 1 s of it.
  CHECK(simulate(launching(2, 1)).frames_per_s == doctest::Approx(0.5).epsilon(0.02));
  // Two lanes fill the GPU.
  CHECK(simulate(launching(0.8, 2)).frames_per_s == doctest::Approx(1 / 0.8).epsilon(0.02));
}

TEST_CASE("the simulation: a launch-bound run is judged by its lanes, another by its kernels") {
  Outcome outcome = simulate(launching(0.2, 2));
  Verdict verdict = judge(outcome.begun, outcome.finished);
  CHECK(verdict.stage == "segment");
  CHECK(verdict.gpu.kind == GpuLimit::Kind::launch_bound);
  outcome = simulate(launching(3, 2));
  verdict = judge(outcome.begun, outcome.finished);
  CHECK(verdict.stage == "segment kernels");
  CHECK(verdict.gpu.kind == GpuLimit::Kind::compute_bound);
}

}  // namespace
}  // namespace millrace
