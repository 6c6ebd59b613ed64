#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "models/engine.hpp"
#include "models/engines/simulated_engine.hpp"
#include "run/capture.hpp"
#include "stages/stage_models.hpp"

namespace millrace {

class FakePinned;
struct FakeMemory;

/// What the lanes of a run compute on.
struct Devices {
  enum class Kind {
    cpu,
    cuda,
    fake,       ///< the path of a GPU on the host: for tests
    simulated,  ///< nothing is computed, and that takes the time of a GPU: to measure the host's side
  };
  Kind kind = Kind::cpu;
  std::vector<int> ordinals{0};      ///< of GPUs; one that stands there twice is two devices, which share it
  std::vector<std::string> buses{};  ///< PCI bus ids of the GPUs
  std::string name = "cpu";          ///< for the plan: what results may differ by in their last bits
  std::string cpu_level{};           ///< for the plan, where models run on the CPU: use_cpu_level()
  std::string mkl_instructions{};    ///< the same, of MKL (models/engines/cpu_level.hpp)
  bool native_bf16 = true;           ///< and TF32: compute capability 8.0 and newer

  std::vector<std::shared_ptr<FakeMemory>> fake_memory{};  ///< where fake: of each; none where it has no end
  std::shared_ptr<FakePinned> fake_pinned{};               ///< where fake: of all, and the only one copied from and to

  std::shared_ptr<const SimulatedTable> table{};  ///< where simulated
  std::shared_ptr<SimulatedGpu> simulated{};

  /// Whether lanes wait for a GPU, rather than compute themselves.
  [[nodiscard]] bool leave_host_free() const { return kind == Kind::cuda || kind == Kind::simulated; }
  [[nodiscard]] int count() const { return static_cast<int>(ordinals.size()); }
  /// Of different GPUs.
  [[nodiscard]] int gpus() const { return static_cast<int>(std::set(ordinals.begin(), ordinals.end()).size()); }
  /// How many of the first `used` devices share the GPU of the one at `index`.
  [[nodiscard]] int sharing(std::size_t index, int used) const {
    return static_cast<int>(std::count(ordinals.begin(), ordinals.begin() + used, ordinals[index]));
  }
  /// The first device on the GPU of the one at `index`.
  [[nodiscard]] std::size_t first_of_gpu(std::size_t index) const {
    return static_cast<std::size_t>(std::find(ordinals.begin(), ordinals.end(), ordinals[index]) - ordinals.begin());
  }
  /// Index into ordinals; lanes take turns.
  [[nodiscard]] std::size_t of_lane(int lane) const { return static_cast<std::size_t>(lane) % ordinals.size(); }
};

/// What device.kind names: "auto", "cpu", "cuda" (the first), "cuda:0,1", "cuda:all" ("cuda:0,0" are two devices on one
/// GPU), and "fake:N" or "fake:N:BYTES", N with so much memory each; with models.engine "simulated:TABLE" the one that
/// TABLE describes. Throws UsageError for other words, PackageError where no such GPU is, or the program was built
/// without CUDA.
Devices find_devices(const std::string& kind, const std::string& engine = "auto");

/// Models of the GPUs that NVIDIA's driver lists in `folder`, whether this program can use them or not.
std::vector<std::string> gpus_of_driver(const std::string& folder = "/proc/driver/nvidia/gpus");

/// For people: which GPUs there are, and whether runs use them. Not healthy: one is there, the program was built for
/// it, and CUDA cannot use it.
struct GpuState {
  std::string text;
  bool healthy = true;
};
GpuState look_for_gpus();

/// What models compute in.
struct Precisions {
  std::optional<Precision> all = Precision::fp32;  ///< none: what each task names for these GPUs
  bool native_bf16 = true;

  [[nodiscard]] Precision of(const Task& task) const {
    return all.value_or(native_bf16 ? task.native_precision : task.older_precision);
  }
  /// For the plan: "fp32" where all these packages compute in it, else "detect fp16, segment bf16".
  [[nodiscard]] std::string name(const Packages& packages) const;
};

/// What device.precision names. Throws UsageError for other words, and for a precision that these devices do not have.
Precisions find_precisions(const std::string& name, const Devices& devices);

/// The device of one lane, which profilers show as `name`.
std::unique_ptr<Device> make_device(const Devices& devices, std::size_t index, const std::string& name);

/// The profilers of CUDA where lanes compute on GPUs.
Profiler profiler_of(const Devices& devices);

/// Where pixels are decoded to, so that they are uploaded at full speed; empty for the CPU.
std::function<std::shared_ptr<void>(std::size_t bytes)> pixel_memory(const Devices& devices);

/// Loads engines for the device at `index`.
EngineFactory engines_on(const Devices& devices, std::size_t index, const Precisions& precisions,
                         EngineFactory factory);

}  // namespace millrace
