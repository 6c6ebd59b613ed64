#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace millrace {

/// One GPU at one moment, as its driver reports it. Values that the driver does not report are empty.
struct GpuSample {
  std::optional<int> utilisation_percent;  ///< share of the last second in which a kernel ran
  std::optional<std::int64_t> memory_used_bytes, memory_total_bytes;
  std::optional<int> sm_mhz, memory_mhz;
  std::optional<double> power_w;
  std::optional<int> temperature_c;
  std::optional<bool> heat_limited, power_limited;  ///< whether the clock is lower because of heat, or the power limit
};

/// NVIDIA's management library, loaded at run time, because only machines with a driver have it.
/// One thread at a time.
class Nvml {
 public:
  /// Returns null if the library is missing or does not start.
  static std::unique_ptr<Nvml> open(const std::string& library = "libnvidia-ml.so.1");
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  /// `bus` is the GPU's PCI bus id, "0000:3b:00.0". The sample of an unknown GPU is empty.
  [[nodiscard]] GpuSample sample(const std::string& bus) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  std::unique_ptr<Functions> functions_;
};

}  // namespace millrace
