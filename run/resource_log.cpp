#include "run/resource_log.hpp"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <utility>

#include "pipeline/thread_pool.hpp"

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
  // Both are numbers of pages.
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
      file_(std::fopen(file.c_str(), "we")),  // e: closed on exec
      begun_ns_(now_ns()),
      last_ns_(begun_ns_),
      last_cpu_ns_(cpu_ns_()) {
  if (file_ == nullptr) return;
  gpus_.resize(buses_.size());
  std::string head = "seconds,cores_busy,resident_bytes";
  for (std::size_t i = 0; i < buses_.size(); ++i) {
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
  std::vector<GpuSummary> all;
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    const Gpu& gpu = gpus_[i];
    auto busy = gpu.utilisation_percent.mean();
    if (busy) *busy /= 100;
    all.push_back({buses_[i], busy, gpu.sm_mhz.mean(), gpu.memory_mhz.mean(), gpu.power_w.mean(),
                   gpu.memory_bytes.peak(), gpu.temperature_c.peak()});
  }
  return all;
}

void ResourceLog::Series::add(std::optional<double> value) {
  if (!value) return;
  max = count == 0 ? *value : std::max(max, *value);
  sum += *value;
  ++count;
}

std::optional<double> ResourceLog::Series::mean() const {
  return count == 0 ? std::nullopt : std::optional(sum / static_cast<double>(count));
}

std::optional<double> ResourceLog::Series::peak() const { return count == 0 ? std::nullopt : std::optional(max); }

void ResourceLog::run() {
  name_this_thread("resources");
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, period, [&] { return ended_; })) write_row();
  write_row();  // so that short runs have a row too
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
    Gpu& gpu = gpus_[i];
    gpu.utilisation_percent.add(sample.utilisation_percent);
    gpu.memory_bytes.add(sample.memory_used_bytes);
    gpu.sm_mhz.add(sample.sm_mhz);
    gpu.memory_mhz.add(sample.memory_mhz);
    gpu.power_w.add(sample.power_w);
    gpu.temperature_c.add(sample.temperature_c);
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
