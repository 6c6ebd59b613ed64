#pragma once

// Shared by the benchmarks of the graph alone: frames without pixels, and a description of the machine.

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/cpu.hpp"
#include "base/json.hpp"
#include "pipeline/cores.hpp"
#include "pipeline/graph.hpp"

namespace millrace::bench {

struct SimulatedFrame {
  std::int64_t id = 0;
  int slots = 1;  // frames of a batch
  bool bad = false;
  ByteCredit credit{};

  [[nodiscard]] std::int64_t batch_id() const { return id / slots; }
  [[nodiscard]] int slot() const { return static_cast<int>(id % slots); }
  [[nodiscard]] int batch_size() const { return slots; }
  [[nodiscard]] bool failed() const { return bad; }
  void set_credit(ByteCredit granted) { credit = std::move(granted); }
};

struct SimulatedBatch {
  std::vector<std::shared_ptr<SimulatedFrame>> frames;
  [[nodiscard]] bool empty() const { return false; }
};

using SimulatedGraph = Graph<SimulatedFrame, SimulatedBatch>;
using SimulatedBodies = GraphBodies<SimulatedFrame, SimulatedBatch>;

/// Bodies that admit `frames` frames in batches of `max_batch`, and do no work.
/// `frames` must be a multiple of `max_batch`. Each frame has one byte, so byte limits count frames.
inline SimulatedBodies empty_bodies(std::int64_t frames, int max_batch) {
  SimulatedBodies bodies;
  bodies.next = [next = std::int64_t{0}, frames, max_batch]() mutable -> std::shared_ptr<SimulatedFrame> {
    if (next == frames) return nullptr;
    auto frame = std::make_shared<SimulatedFrame>();
    frame->id = next++;
    frame->slots = max_batch;
    return frame;
  };
  bodies.read = [](SimulatedFrame&) {};
  bodies.bytes = [](const SimulatedFrame&) { return std::int64_t{1}; };
  bodies.frame_stages = {{"decode", [](SimulatedFrame&) {}}};
  bodies.make_batch = [](std::vector<std::shared_ptr<SimulatedFrame>> slots) {
    return std::make_shared<SimulatedBatch>(std::move(slots));
  };
  bodies.lane_stages = {{"detect", [](SimulatedBatch&, int) {}}};
  bodies.batch_stages = {{"encode", [](SimulatedBatch&) {}}};
  bodies.commit = [](SimulatedBatch&) {};
  bodies.frame_failed = [](SimulatedFrame& frame, const std::string&, const std::exception_ptr&) { frame.bad = true; };
  bodies.batch_failed = [](SimulatedBatch&, const std::string&, const std::exception_ptr&) {};
  return bodies;
}

/// CPU time in ms that all programs of this machine have used since it started; 0 if /proc/stat cannot be read.
inline double machine_cpu_ms() {
  std::ifstream stat("/proc/stat");
  std::string cpu;
  double user = 0;
  double nice = 0;
  double system = 0;
  stat >> cpu >> user >> nice >> system;
  return (user + nice + system) * 1e3 / static_cast<double>(sysconf(_SC_CLK_TCK));
}

/// For the report: the processor's name and instructions, the cores that this process may use, and the load now.
inline nlohmann::json machine() {
  double load = 0;
  std::ifstream("/proc/loadavg") >> load;
  return {{"cpu", cpu_name()}, {"instructions", cpu_features()}, {"cores", available_cores()}, {"load_at_start", load}};
}

}  // namespace millrace::bench
