#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/nvml.hpp"
#include "pipeline/statistics.hpp"
#include "pipeline/ticker.hpp"

namespace millrace {

/// The load of a GPU over a run, as its driver reports it. Values that the driver does not report are empty.
struct GpuSummary {
  std::string bus;                         ///< PCI bus id
  std::optional<double> mean_utilisation;  ///< 0..1
  std::optional<double> mean_sm_mhz, mean_memory_mhz, mean_power_w;
  std::optional<double> peak_memory_bytes, peak_temperature_c;
  std::optional<double> heat_limited, power_limited;  ///< shares of the time with a lower clock for this reason, 0..1
};

/// Writes a row to `file` once a second, on a thread of its own. Unknown values are empty.
/// - seconds since the start
/// - cores that the program used, that others used, that the hypervisor took, and that a CPU quota withheld
/// - the share of the second in which some thread of the machine waited for a core, for memory, for a disk
/// - resident bytes, bytes read from disks and written to them per second, clock and temperature of the CPU
/// - pictures committed since the start of the run, pictures in flight, and the items that wait at each place
/// - for each GPU utilisation, memory, clocks, power and temperature, and whether heat or the power limit lowers its clock
///
/// The columns of pictures and queues stay empty until the first picture enters the pipeline.
/// If the file cannot be opened, there is no log and no summary. Later write errors are ignored.
class ResourceLog {
 public:
  /// `now` returns the statistics so far, from any thread. `buses` are the GPUs; without NVML they are left out.
  ResourceLog(const std::string& file, std::vector<std::string> buses, std::function<Snapshot()> now);
  ResourceLog(const ResourceLog&) = delete;
  ResourceLog& operator=(const ResourceLog&) = delete;
  ~ResourceLog();

  /// The time that its rows call 0, by the clock of the statistics.
  [[nodiscard]] std::int64_t begun_ns() const { return begun_.run.time_ns; }
  /// Ends the log and returns a summary for each GPU.
  std::vector<GpuSummary> finish();

 private:
  void write_row();

  /// Sums since the start of the process or machine, at one moment.
  struct Totals {
    Snapshot run;
    std::optional<std::int64_t> read_bytes{}, written_bytes{};
  };
  [[nodiscard]] Totals totals() const;

  const std::function<Snapshot()> now_;
  const std::unique_ptr<Nvml> nvml_;
  std::vector<std::string> buses_;
  /// Statistics of the samples that have a value.
  struct Series {
    double sum = 0, max = 0;
    std::int64_t count = 0;
    void add(std::optional<double> value);
    [[nodiscard]] std::optional<double> mean() const;
    [[nodiscard]] std::optional<double> peak() const;
  };
  struct Gpu {
    Series utilisation_percent, memory_bytes, sm_mhz, memory_mhz, power_w, temperature_c, heat_limited, power_limited;
  };
  std::vector<Gpu> gpus_;  // in the order of buses_
  std::FILE* file_;
  const Totals begun_;
  Totals last_;
  std::optional<Ticker> ticker_;
};

}  // namespace millrace
