#include "gpu/nvml.hpp"

#include <dlfcn.h>

#include <utility>

namespace millrace {
namespace {

// Declared here, because Debian has no package with NVML's header. The interface is stable since its version 2.
using Return = int;  // 0 is success
using Handle = void*;
struct Utilisation {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};
// Values of nvmlClockType_t and nvmlTemperatureSensors_t.
constexpr int sm_clock = 1, memory_clock = 2, gpu_temperature = 0;
// Bits of nvmlClocksEventReason*, why a clock is lower than it could be.
constexpr unsigned long long power_cap = 0x4, slowdown = 0x8, thermal = 0x20 | 0x40, power_brake = 0x80;

}  // namespace

struct Nvml::Functions {
  void* library = nullptr;
  Return (*init)() = nullptr;
  Return (*shutdown)() = nullptr;
  Return (*handle)(const char* bus, Handle*) = nullptr;
  Return (*utilisation)(Handle, Utilisation*) = nullptr;
  Return (*memory)(Handle, Memory*) = nullptr;
  Return (*clock)(Handle, int kind, unsigned* mhz) = nullptr;
  Return (*power)(Handle, unsigned* milliwatts) = nullptr;
  Return (*temperature)(Handle, int sensor, unsigned* celsius) = nullptr;
  Return (*clock_reasons)(Handle, unsigned long long* bits) = nullptr;  // null if the driver is too old

  Functions() = default;
  Functions(const Functions&) = delete;
  Functions& operator=(const Functions&) = delete;
  ~Functions() {
    if (library != nullptr) ::dlclose(library);
  }

  template <class Function>
  bool find(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(::dlsym(library, name));
    return function != nullptr;
  }
};

Nvml::Nvml(std::unique_ptr<Functions> functions) : functions_(std::move(functions)) {}

std::unique_ptr<Nvml> Nvml::open(const std::string& library) {
  auto f = std::make_unique<Functions>();
  f->library = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (f->library == nullptr) return nullptr;
  const bool all = f->find(f->init, "nvmlInit_v2") && f->find(f->shutdown, "nvmlShutdown") &&
                   f->find(f->handle, "nvmlDeviceGetHandleByPciBusId_v2") &&
                   f->find(f->utilisation, "nvmlDeviceGetUtilizationRates") &&
                   f->find(f->memory, "nvmlDeviceGetMemoryInfo") && f->find(f->clock, "nvmlDeviceGetClockInfo") &&
                   f->find(f->power, "nvmlDeviceGetPowerUsage") && f->find(f->temperature, "nvmlDeviceGetTemperature");
  // The name of drivers before version 535. Newer ones have it too.
  f->find(f->clock_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
  // An object exists only after a successful init, because its destructor calls shutdown.
  if (!all || f->init() != 0) return nullptr;
  return std::unique_ptr<Nvml>(new Nvml(std::move(f)));
}

Nvml::~Nvml() { functions_->shutdown(); }

GpuSample Nvml::sample(const std::string& bus) const {
  const Functions& f = *functions_;
  GpuSample sample;
  Handle gpu = nullptr;
  // By bus id: NVML and CUDA may number GPUs in different orders, and NVML ignores CUDA_VISIBLE_DEVICES.
  if (f.handle(bus.c_str(), &gpu) != 0) return sample;
  if (Utilisation value{}; f.utilisation(gpu, &value) == 0) sample.utilisation_percent = static_cast<int>(value.gpu);
  if (Memory value{}; f.memory(gpu, &value) == 0) {
    sample.memory_used_bytes = static_cast<std::int64_t>(value.used);
    sample.memory_total_bytes = static_cast<std::int64_t>(value.total);
  }
  unsigned value = 0;
  if (f.clock(gpu, sm_clock, &value) == 0) sample.sm_mhz = static_cast<int>(value);
  if (f.clock(gpu, memory_clock, &value) == 0) sample.memory_mhz = static_cast<int>(value);
  if (f.power(gpu, &value) == 0) sample.power_w = value / 1e3;
  if (f.temperature(gpu, gpu_temperature, &value) == 0) sample.temperature_c = static_cast<int>(value);
  if (unsigned long long bits = 0; f.clock_reasons != nullptr && f.clock_reasons(gpu, &bits) == 0) {
    sample.power_limited = (bits & (power_cap | power_brake)) != 0;
    // GPUs that do not tell the reason of a slowdown mostly have this one.
    sample.heat_limited = (bits & thermal) != 0 || ((bits & slowdown) != 0 && (bits & power_brake) == 0);
  }
  return sample;
}

}  // namespace millrace
