#include "apps/resource_log.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <utility>

#include "pipeline/crew.hpp"

namespace millrace {
namespace {

constexpr std::chrono::seconds period{1};

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

template <class Value>
void field(std::string& row, const std::optional<Value>& value) {
  row += ',';
  if (value) row += std::to_string(*value);
}

}  // namespace

ResourceLog::ResourceLog(const std::string& file, std::vector<std::string> buses, std::function<std::int64_t()> cpu_ns)
    : cpu_ns_(std::move(cpu_ns)),
      nvml_(buses.empty() ? nullptr : Nvml::open()),
      buses_(nvml_ == nullptr ? std::vector<std::string>{} : std::move(buses)),
      file_(std::fopen(file.c_str(), "we")),
      begun_ns_(now_ns()),
      last_ns_(begun_ns_),
      last_cpu_ns_(cpu_ns_()) {
  if (file_ == nullptr) return;
  std::string head = "seconds,cores_busy,resident_bytes";
  for (std::size_t i = 0; i < buses_.size(); ++i) {
    summaries_.push_back({buses_[i], 0, 0, 0, 0, 0});
    for (const char* name :
         {"utilisation_percent", "memory_used_bytes", "sm_mhz", "memory_mhz", "power_w", "temperature_c"})
      head += ",gpu" + std::to_string(i) + "_" + name;
  }
  std::fputs((head + "\n").c_str(), file_);
  thread_ = std::thread([this] { run(); });
}

ResourceLog::~ResourceLog() { finish(); }

std::vector<GpuSummary> ResourceLog::finish() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (file_ != nullptr) std::fclose(std::exchange(file_, nullptr));
  std::vector<GpuSummary> all = summaries_;
  for (GpuSummary& one : all) {
    if (one.samples == 0) continue;
    one.mean_utilisation /= 100 * static_cast<double>(one.samples);  // a sum of percents until now
    one.mean_power_w /= static_cast<double>(one.samples);
  }
  return all;
}

void ResourceLog::run() {
  name_this_thread("resources");
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, period, [&] { return ended_; })) write_row();
  write_row();  // short runs have one too
}

void ResourceLog::write_row() {
  const std::int64_t now = now_ns(), cpu = cpu_ns_();
  const double seconds = static_cast<double>(now - begun_ns_) / 1e9;
  const double cores =
      now > last_ns_ ? static_cast<double>(cpu - last_cpu_ns_) / static_cast<double>(now - last_ns_) : 0;
  last_ns_ = now;
  last_cpu_ns_ = cpu;
  std::string row = std::to_string(seconds) + "," + std::to_string(cores) + "," + std::to_string(resident_bytes());
  for (std::size_t i = 0; i < buses_.size(); ++i) {
    const GpuSample sample = nvml_->sample(buses_[i]);
    GpuSummary& summary = summaries_[i];
    ++summary.samples;
    summary.mean_utilisation += sample.utilisation_percent.value_or(0);
    summary.mean_power_w += sample.power_w.value_or(0);
    summary.peak_memory_bytes = std::max(summary.peak_memory_bytes, sample.memory_used_bytes.value_or(0));
    summary.peak_temperature_c = std::max(summary.peak_temperature_c, sample.temperature_c.value_or(0));
    field(row, sample.utilisation_percent);
    field(row, sample.memory_used_bytes);
    field(row, sample.sm_mhz);
    field(row, sample.memory_mhz);
    field(row, sample.power_w);
    field(row, sample.temperature_c);
  }
  std::fputs((row + "\n").c_str(), file_);
  std::fflush(file_);
}

}  // namespace millrace
