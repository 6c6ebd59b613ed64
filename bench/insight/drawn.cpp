#include "bench/insight/drawn.hpp"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace millrace {
namespace {

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

}  // namespace

PipelineModel drawn(std::uint64_t seed) {
  Draw draw(seed);
  PipelineModel p;
  p.seed = seed;
  p.cores = draw.one_of<int>({1, 2, 2, 4, 8, 16});
  const bool gpu = draw.chance(0.4);
  const auto cores = static_cast<int>(p.cores);
  p.batch = gpu ? draw.one_of<int>({4, 8, 16}) : 1;
  p.admission = draw.chance(0.1) ? 2 * p.batch : std::max(16, 6 * p.batch);
  p.lanes = gpu ? draw.whole(1, 3) : std::max(1, cores / 8);
  const int team = gpu ? 1 : std::min(cores, 8);
  p.workers = gpu ? cores : std::max(1, cores / 4);
  p.worker_weight = 0.11;  // ten nice levels
  p.frames = 40 * p.batch + 200;
  p.spread = draw.between(0.05, 1);
  p.others = draw.chance(0.5) ? 0 : draw.whole(1, 2 * cores);
  p.input.mean.wait_s = draw.chance(0.1) ? draw.between(0.02, 0.3) : 0.0001;
  p.read.mean.core_s = 0.0001;
  p.read.mean.wait_s = draw.chance(0.15) ? draw.between(0.05, 0.6) : draw.between(0.0005, 0.01);
  p.frame_stages = {{"decode", {draw.between(0.003, 0.1)}}};
  const double per_batch = p.batch;
  // A GPU that waits for launches, or one whose queue is long.
  const double launch = gpu && draw.chance(0.3) ? draw.between(0.9, 3) : draw.between(0.03, 0.3);
  for (const char* name : {"preprocess", "detect", "segment", "postprocess"}) {
    const bool model = std::string(name) == "detect" || std::string(name) == "segment";
    const double cost = (model ? draw.between(0.01, 0.5) : draw.between(0.0005, 0.01)) * (gpu ? 0.1 : 1) * per_batch;
    p.lane_stages.push_back(
        {name, gpu ? Cost{0.1 * cost, 1, 0.9 * cost, 0, launch * 0.9 * cost} : Cost{cost, static_cast<double>(team)}});
  }
  p.batch_stages = {{"encode", {draw.between(0.001, 0.08) * per_batch}}};
  p.commit.mean.core_s = 0.0002 * per_batch;
  p.commit.mean.wait_s = draw.chance(0.1) ? draw.between(0.02, 0.3) * per_batch : 0.0005;
  return p;
}

}  // namespace millrace
