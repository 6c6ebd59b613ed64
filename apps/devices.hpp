#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "models/engine.hpp"

namespace millrace {

/// What the lanes of a run compute on.
struct Devices {
  enum class Kind {
    cpu,
    cuda,
    fake,  ///< the path of a GPU on the host: for tests
  };
  Kind kind = Kind::cpu;
  std::vector<int> ordinals{0};  ///< of GPUs
  std::string name = "cpu";      ///< for the plan: what results may differ by in their last bits

  [[nodiscard]] int count() const { return static_cast<int>(ordinals.size()); }
  /// Index into ordinals; lanes take turns.
  [[nodiscard]] std::size_t of_lane(int lane) const { return static_cast<std::size_t>(lane) % ordinals.size(); }
};

/// What device.kind names: "auto", "cpu", "cuda" (the first), "cuda:0,1", "cuda:all", and "fake:N". Throws UsageError
/// for other words, PackageError where no such GPU is, or the program was built without CUDA.
Devices find_devices(const std::string& kind);

/// The device of one lane.
std::unique_ptr<Device> make_device(const Devices& devices, std::size_t index);

/// Where pixels are decoded to, so that they are uploaded at full speed; empty for the CPU.
std::function<std::shared_ptr<void>(std::size_t bytes)> pixel_memory(const Devices& devices);

/// Loads engines for the device at `index`.
EngineFactory engines_on(const Devices& devices, std::size_t index, EngineFactory factory);

}  // namespace millrace
