#pragma once

#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "gpu/nvml.hpp"

namespace millrace {

/// What a GPU did over a run.
struct GpuSummary {
  std::string bus;  ///< PCI bus id
  std::int64_t samples = 0;
  double mean_utilisation = 0;  ///< 0..1, of the samples that say
  std::int64_t peak_memory_bytes = 0;
  double mean_power_w = 0;
  int peak_temperature_c = 0;
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
  std::vector<GpuSummary> summaries_;
  std::FILE* file_;
  const std::int64_t begun_ns_;
  std::int64_t last_ns_, last_cpu_ns_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace millrace
