#include "models/demand.hpp"

#include <algorithm>
#include <cmath>

#include "base/trace_recorder.hpp"
#include "gpu/stream.hpp"
#include "models/engines/wrapped_engine.hpp"
#include "models/exec_shapes.hpp"

namespace millrace {
namespace {

// Of the device, before a timed call. The first call of a method can take seconds; launches of later ones take less
// than half of this.
constexpr double max_idle_s = 0.1;

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

class CountedEngine final : public WrappedEngine {
 public:
  CountedEngine(std::shared_ptr<Engine> engine, Package package, std::shared_ptr<Demand> demand,
                TraceRecorder* recorder)
      : WrappedEngine(std::move(engine)),
        package_(std::move(package)),
        demand_(std::move(demand)),
        recorder_(recorder) {}

  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override {
    // The clock of the pipeline.
    const auto begun_ns = recorder_ == nullptr ? 0 : ModelCache::steady_clock_ns();
    // A call that throws does not count.
    auto outputs = engine_->call(method, inputs, device);
    const int rows = computed_rows(rows_of_call(package_, method, inputs), row_counts(method));
    const auto call = demand_->count(package_, package_.method(method), rows);
    if (recorder_ != nullptr && call) {
      recorder_->add({TraceEvent::Kind::call, static_cast<std::uint32_t>(rows), call->part, call->alone_ns, begun_ns,
                      ModelCache::steady_clock_ns()});
    }
    return outputs;
  }

 private:
  const Package package_;
  const std::shared_ptr<Demand> demand_;
  TraceRecorder* const recorder_;
};

}  // namespace

void Demand::measured(const Package& package, std::string_view method, std::int64_t rows, const Alone& alone) {
  const std::lock_guard lock(mutex_);
  alone_[{package.id(), std::string(method)}][rows] = alone;
}

std::optional<Demand::Call> Demand::count(const Package& package, const Method& method, std::int64_t rows) {
  const std::lock_guard lock(mutex_);
  const auto known = alone_.find({package.id(), method.name});
  if (known == alone_.end() || rows < 1) return std::nullopt;
  // The ratio of rows counts, since the time per row depends on it: 1 is further from 4 than 8 is.
  const auto distance = [&](const auto& entry) {
    return std::abs(std::log(static_cast<double>(entry.first) / static_cast<double>(rows)));
  };
  const auto nearest = std::min_element(known->second.begin(), known->second.end(),
                                        [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
  const double scale = static_cast<double>(rows) / static_cast<double>(nearest->first);
  Part& part = parts_[method.part];
  part.name = method.part;
  const auto alone_ns = static_cast<std::int64_t>(scale * nearest->second.seconds * 1e9);
  part.busy_ns += alone_ns;
  part.launch_ns += static_cast<std::int64_t>(scale * nearest->second.launch_seconds * 1e9);
  ++part.calls;
  return Call{&part.name, alone_ns};
}

std::vector<Demand::Part> Demand::parts() const {
  const std::lock_guard lock(mutex_);
  std::vector<Part> all;
  for (const auto& [name, part] : parts_) all.push_back(part);
  return all;
}

std::shared_ptr<Engine> counted(std::shared_ptr<Engine> engine, const Package& package, std::shared_ptr<Demand> demand,
                                TraceRecorder* recorder) {
  return std::make_shared<CountedEngine>(std::move(engine), package, std::move(demand), recorder);
}

void measure_alone(Engine& engine, const Package& package, const MethodRows& rows, int repeats, Device& device,
                   Demand& demand, const ModelCache::Clock& now_ns) {
  Stream* stream = device.stream();
  if (stream == nullptr) return;
  for (const Method& method : package.methods) {
    const auto inputs = warm_up_inputs(engine, package, method, call_of(package, method, rows), device);
    std::vector<double> seconds, launch_seconds;
    double longest_launch_s = 0;  // of calls so far
    for (int i = 0; i < 1 + repeats; ++i) {
      double launch_s = 0;
      const auto call = [&] {
        const auto begun_ns = now_ns();
        engine.call(method.name, inputs, device);
        launch_s = static_cast<double>(now_ns() - begun_ns) / 1e9;
      };
      const double taken = stream->time(call, std::min(2 * longest_launch_s, max_idle_s));
      longest_launch_s = std::max(longest_launch_s, launch_s);
      // The first call only warms up.
      if (i == 0) continue;
      seconds.push_back(taken);
      launch_seconds.push_back(launch_s);
    }
    const Demand::Alone alone{median(seconds), median(launch_seconds)};
    // 0: the stream has no clock.
    const int computed = computed_rows(rows.find(method.name)->second, engine.row_counts(method.name));
    if (alone.seconds > 0) demand.measured(package, method.name, computed, alone);
  }
}

}  // namespace millrace
