#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/nvjpeg.hpp"
#include "models/engine.hpp"
#include "models/engines/simulated_engine.hpp"
#include "run/capture.hpp"
#include "stages/stage_models.hpp"

namespace millrace {

class FakePinned;
struct FakeMemory;

/// The devices on which the lanes of a run compute.
struct Devices {
  enum class Kind {
    cpu,
    cuda,
    fake,       ///< for tests: the code path of a GPU, on the host
    simulated,  ///< for measurements of the host's side: computes nothing and takes the time of a GPU
  };
  Kind kind = Kind::cpu;
  std::vector<int> ordinals{0};      ///< GPU of each device; a GPU that appears twice is shared by two devices
  std::vector<std::string> buses{};  ///< PCI bus ids of the GPUs
  std::string name = "cpu";          ///< for the plan: results of devices with other names may differ in the last bits
  std::string cpu_level{};           ///< for the plan, if models run on the CPU; set by use_cpu_level()
  std::string mkl_instructions{};    ///< the same for MKL (models/engines/cpu_level.hpp)
  bool native_bf16 = true;           ///< has bf16 and TF32: compute capability 8.0 or higher

  std::vector<std::shared_ptr<FakeMemory>> fake_memory{};  ///< fake: the memory of each device; empty: unlimited
  std::shared_ptr<FakePinned> fake_pinned{};  ///< fake: the only host memory that copies of all devices may use

  std::shared_ptr<const SimulatedTable> table{};  ///< simulated: the times of calls
  std::shared_ptr<SimulatedGpu> simulated{};

  /// Whether lanes wait for a GPU instead of computing on the host.
  [[nodiscard]] bool lanes_wait_for_gpu() const { return kind == Kind::cuda || kind == Kind::simulated; }
  [[nodiscard]] int count() const { return static_cast<int>(ordinals.size()); }
  /// The number of different GPUs.
  [[nodiscard]] int gpus() const { return static_cast<int>(std::set(ordinals.begin(), ordinals.end()).size()); }
  /// How many of the first `used` devices share the GPU of the one at `index`.
  [[nodiscard]] int sharing(std::size_t index, int used) const {
    return static_cast<int>(std::count(ordinals.begin(), ordinals.begin() + used, ordinals[index]));
  }
  /// The first device on the GPU of the one at `index`.
  [[nodiscard]] std::size_t first_of_gpu(std::size_t index) const {
    return static_cast<std::size_t>(std::find(ordinals.begin(), ordinals.end(), ordinals[index]) - ordinals.begin());
  }
  /// The index of a lane's device. Lanes are assigned to devices in turn.
  [[nodiscard]] std::size_t of_lane(int lane) const { return static_cast<std::size_t>(lane) % ordinals.size(); }
};

/// The devices that device.kind names:
/// - "auto": the first GPU, or the CPU if there is no GPU or the program was built without CUDA
/// - "cpu": the CPU
/// - "cuda": the first GPU
/// - "cuda:0,1": these GPUs; "cuda:0,0" is two devices on one GPU
/// - "cuda:all": all GPUs
/// - "fake:N": N fake devices, with unlimited memory
/// - "fake:N:BYTES": N fake devices, with BYTES of memory each
///
/// If `engine` is "simulated:TABLE", it is the GPU that TABLE describes. `kind` must then be "auto".
/// Throws UsageError for other words.
/// Throws PackageError if a GPU does not exist or cannot be used, or if the program was built without CUDA.
Devices find_devices(const std::string& kind, const std::string& engine = "auto");

/// The product names of the GPUs that NVIDIA's driver lists in `folder`, even if this program cannot use them.
std::vector<std::string> gpus_of_driver(const std::string& folder = "/proc/driver/nvidia/gpus");

/// A text for people: which GPUs exist, and whether runs use them.
struct GpuState {
  std::string text;
  bool healthy = true;  ///< false if a GPU exists and the program was built for it, but CUDA cannot use it
};
GpuState look_for_gpus();

/// The precisions in which models compute, by task.
struct Precisions {
  std::map<std::string, Precision, std::less<>> by_task{};  ///< of all tasks; empty: fp32

  [[nodiscard]] Precision of(const Task& task) const;
  [[nodiscard]] bool has(Precision precision) const;
  /// For the plan: "fp32" if all these packages compute in it, otherwise by task: "detect fp16, segment bf16".
  [[nodiscard]] std::string name(const Packages& packages) const;
};

/// The precisions that device.precision names, such as "auto", "bf16" or "detect=fp32,segment=bf16".
/// Throws UsageError for other words, and for a precision that these devices do not have.
Precisions find_precisions(const std::string& name, const Devices& devices);

/// Makes the device at `index` for one lane. Profilers show it as `name`.
std::unique_ptr<Device> make_device(const Devices& devices, std::size_t index, const std::string& name);

/// The profiler of CUDA if lanes compute on GPUs, otherwise empty.
Profiler profiler_of(const Devices& devices);

/// Allocates memory for decoded pixels from which they are uploaded at full speed. Empty for the CPU.
std::function<std::shared_ptr<void>(std::size_t bytes)> pixel_memory(const Devices& devices);

/// Opens nvJPEG for the GPUs of the devices.
/// Throws UsageError if the devices are no GPUs, and PluginError as Nvjpeg::open() does.
std::shared_ptr<Nvjpeg> open_nvjpeg(const Devices& devices);

/// A factory that uses `factory` to load engines for the device at `index`.
EngineFactory engines_on(const Devices& devices, std::size_t index, const Precisions& precisions,
                         EngineFactory factory);

}  // namespace millrace
