#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gpu/nvml.hpp"

namespace millrace {

/// What a GPU did over a run, as its driver says; nothing where it does not.
struct GpuSummary {
  std::string bus;                         ///< PCI bus id
  std::optional<double> mean_utilisation;  ///< 0..1
  std::optional<double> mean_sm_mhz, mean_memory_mhz, mean_power_w;
  std::optional<double> peak_memory_bytes, peak_temperature_c;
};

/// Writes `file` once a second while it lives: seconds, cores busy, resident bytes, and of each GPU utilisation,
/// memory, clocks, power and temperature; an empty field is not known. A file that cannot be written ends the log, not
/// the run.
class ResourceLog {
 public:
  /// `cpu_ns`: CPU time of the process so far. Without NVML GPUs are left out.
  ResourceLog(const std::string& file, std::vector<std::string> buses, std::function<std::int64_t()> cpu_ns);
  ResourceLog(const ResourceLog&) = delete;
  ResourceLog& operator=(const ResourceLog&) = delete;
  ~ResourceLog();

  /// Ends it.
  std::vector<GpuSummary> finish();

 private:
  void run();
  void write_row();

  const std::function<std::int64_t()> cpu_ns_;
  const std::unique_ptr<Nvml> nvml_;
  std::vector<std::string> buses_;
  /// Of the samples that say something.
  struct Series {
    double sum = 0, most = 0;
    std::int64_t count = 0;
    void add(std::optional<double> value);
    [[nodiscard]] std::optional<double> mean() const;
    [[nodiscard]] std::optional<double> peak() const;
  };
  struct Gpu {
    Series utilisation_percent, memory_bytes, sm_mhz, memory_mhz, power_w, temperature_c;
  };
  std::vector<Gpu> gpus_;  // as buses_
  std::FILE* file_;
  const std::int64_t begun_ns_;
  std::int64_t last_ns_, last_cpu_ns_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace millrace
