#include "run/resource_log.hpp"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "run/host_memory.hpp"

namespace millrace {
namespace {

constexpr std::chrono::seconds period{1};

// Returns the value of a line "key: value", as in /proc/self/io.
std::optional<std::int64_t> value_of(const std::string& text, const std::string& key) {
  const auto at = text.find(key + ": ");
  if (at == std::string::npos) return std::nullopt;
  return std::strtoll(text.c_str() + at + key.size() + 2, nullptr, 10);
}

std::optional<double> number_in(const std::filesystem::path& file) {
  std::ifstream stream(file);
  double value = 0;
  return stream >> value ? std::optional(value) : std::nullopt;
}

/// The mean clock of the first cores. All would be too many on a large machine: each read interrupts its core.
std::optional<double> cpu_mhz() {
  constexpr int cores = 8;
  double sum = 0;
  int count = 0;
  for (int core = 0; core < cores; ++core) {
    const auto khz = number_in("/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cpufreq/scaling_cur_freq");
    if (!khz) continue;
    sum += *khz / 1000;
    ++count;
  }
  return count == 0 ? std::nullopt : std::optional(sum / count);
}

/// The highest temperature of the machine's thermal zones.
std::optional<double> temperature_c() {
  std::optional<double> highest;
  std::error_code error;
  for (const auto& zone : std::filesystem::directory_iterator("/sys/class/thermal", error)) {
    const auto thousandths = number_in(zone.path() / "temp");
    if (thousandths) highest = std::max(highest.value_or(*thousandths / 1000), *thousandths / 1000);
  }
  return highest;
}

template <class Value>
void field(std::string& row, const std::optional<Value>& value) {
  row += ',';
  if (value) row += std::to_string(*value);
}

void pipeline_fields(std::string& row, const Snapshot& now) {
  const auto add = [&](std::int64_t value) { field(row, now.planned > 0 ? std::optional(value) : std::nullopt); };
  add(now.committed);
  add(now.in_flight);
  for (const Reading* place : waiting_places(now)) add(place->queue_length);
}

}  // namespace

ResourceLog::ResourceLog(const std::string& file, std::vector<std::string> buses, std::function<Snapshot()> now)
    : now_(std::move(now)),
      nvml_(buses.empty() ? nullptr : Nvml::open()),
      buses_(nvml_ == nullptr ? std::vector<std::string>{} : std::move(buses)),
      file_(std::fopen(file.c_str(), "we")),  // e: closed on exec
      begun_(totals()),
      last_(begun_) {
  if (file_ == nullptr) return;
  gpus_.resize(buses_.size());
  std::string head =
      "seconds,cores_busy,other_cores,stolen_cores,throttled_cores,cpu_stall,memory_stall,io_stall,resident_bytes,"
      "disk_read_bytes_per_s,disk_written_bytes_per_s,cpu_mhz,temperature_c,pictures,in_flight";
  for (const Reading* place : waiting_places(begun_.run)) head += ",queue_" + place->name;
  for (std::size_t i = 0; i < buses_.size(); ++i) {
    for (const char* name : {"utilisation_percent", "memory_used_bytes", "sm_mhz", "memory_mhz", "power_w",
                             "temperature_c", "heat_limited", "power_limited"})
      head += ",gpu" + std::to_string(i) + "_" + name;
  }
  std::fputs((head + "\n").c_str(), file_);
  ticker_.emplace("resources", period, [this] { write_row(); });
}

ResourceLog::~ResourceLog() { finish(); }

std::vector<GpuSummary> ResourceLog::finish() {
  ticker_.reset();
  if (file_ != nullptr) {
    write_row();  // so that short runs have a row too
    std::fclose(std::exchange(file_, nullptr));
  }
  std::vector<GpuSummary> all;
  for (std::size_t i = 0; i < gpus_.size(); ++i) {
    const Gpu& gpu = gpus_[i];
    auto busy = gpu.utilisation_percent.mean();
    if (busy) *busy /= 100;
    all.push_back({buses_[i], busy, gpu.sm_mhz.mean(), gpu.memory_mhz.mean(), gpu.power_w.mean(),
                   gpu.memory_bytes.peak(), gpu.temperature_c.peak(), gpu.heat_limited.mean(),
                   gpu.power_limited.mean()});
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

ResourceLog::Totals ResourceLog::totals() const {
  std::ostringstream io;
  io << std::ifstream("/proc/self/io").rdbuf();
  return {now_(), value_of(io.str(), "read_bytes"), value_of(io.str(), "write_bytes")};
}

void ResourceLog::write_row() {
  const Totals now = totals();
  const auto elapsed_ns = static_cast<double>(std::max<std::int64_t>(now.run.time_ns - last_.run.time_ns, 1));
  const MachineTime machine = now.run.machine - last_.run.machine;
  const std::int64_t own_ns = now.run.cpu_ns - last_.run.cpu_ns;
  const auto share = [&](const std::optional<std::int64_t>& ns) {
    return ns ? std::optional(static_cast<double>(*ns) / elapsed_ns) : std::nullopt;
  };
  const auto rate = [&](const std::optional<std::int64_t>& to, const std::optional<std::int64_t>& from) {
    return to && from ? std::optional(static_cast<double>(*to - *from) * 1e9 / elapsed_ns) : std::nullopt;
  };
  auto others_ns = machine.busy_ns;
  if (others_ns) *others_ns = std::max<std::int64_t>(*others_ns - own_ns, 0);
  std::string row = std::to_string(static_cast<double>(now.run.time_ns - begun_.run.time_ns) / 1e9) + "," +
                    std::to_string(static_cast<double>(own_ns) / elapsed_ns);
  for (const auto& ns : {others_ns, machine.stolen_ns, machine.throttled_ns, machine.cpu_stall_ns,
                         machine.memory_stall_ns, machine.io_stall_ns})
    field(row, share(ns));
  field(row, resident_memory());
  field(row, rate(now.read_bytes, last_.read_bytes));
  field(row, rate(now.written_bytes, last_.written_bytes));
  field(row, cpu_mhz());
  field(row, temperature_c());
  pipeline_fields(row, now.run);
  last_ = now;
  for (std::size_t i = 0; i < buses_.size(); ++i) {
    const GpuSample sample = nvml_->sample(buses_[i]);
    Gpu& gpu = gpus_[i];
    gpu.utilisation_percent.add(sample.utilisation_percent);
    gpu.memory_bytes.add(sample.memory_used_bytes);
    gpu.sm_mhz.add(sample.sm_mhz);
    gpu.memory_mhz.add(sample.memory_mhz);
    gpu.power_w.add(sample.power_w);
    gpu.temperature_c.add(sample.temperature_c);
    gpu.heat_limited.add(sample.heat_limited);
    gpu.power_limited.add(sample.power_limited);
    field(row, sample.utilisation_percent);
    field(row, sample.memory_used_bytes);
    field(row, sample.sm_mhz);
    field(row, sample.memory_mhz);
    field(row, sample.power_w);
    field(row, sample.temperature_c);
    field(row, sample.heat_limited);
    field(row, sample.power_limited);
  }
  std::fputs((row + "\n").c_str(), file_);
  std::fflush(file_);
}

}  // namespace millrace
