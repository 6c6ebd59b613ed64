#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace millrace {

/// One GPU at one moment, as its driver says; nothing where it does not.
struct GpuSample {
  std::optional<int> utilisation_percent;  ///< share of the last second in which some kernel ran
  std::optional<std::int64_t> memory_used_bytes, memory_total_bytes;
  std::optional<int> sm_mhz, memory_mhz;
  std::optional<double> power_w;
  std::optional<int> temperature_c;
};

/// NVIDIA's management library, found when the program runs: there is none without a driver. One thread at a time.
class Nvml {
 public:
  /// Null where the library is not there or does not start.
  static std::unique_ptr<Nvml> open(const std::string& library = "libnvidia-ml.so.1");
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;
  ~Nvml();

  /// `bus` is the GPU's PCI bus id, "0000:3b:00.0". Nothing at all in the sample of a GPU that is not there.
  [[nodiscard]] GpuSample sample(const std::string& bus) const;

 private:
  struct Functions;
  explicit Nvml(std::unique_ptr<Functions> functions);
  std::unique_ptr<Functions> functions_;
};

}  // namespace millrace
