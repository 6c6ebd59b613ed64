// A libnvidia-ml.so.1 for tests: it has one GPU at fake:0, which does not report its power.
#include <cstring>

struct Utilisation {
  unsigned gpu, memory;
};
struct Memory {
  unsigned long long total, free, used;
};

namespace {
int gpu;
int running;
constexpr int not_supported = 3, not_found = 6, uninitialised = 1;
}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are NVML's
extern "C" {
int nvmlInit_v2() { return ++running, 0; }
int nvmlShutdown() { return --running, 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** handle) {
  if (running == 0) return uninitialised;
  if (std::strcmp(bus, "fake:0") != 0) return not_found;
  *handle = &gpu;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void*, Utilisation* value) { return *value = {87, 40}, 0; }
int nvmlDeviceGetMemoryInfo(void*, Memory* value) { return *value = {1000, 400, 600}, 0; }
int nvmlDeviceGetClockInfo(void*, int kind, unsigned* mhz) { return *mhz = kind == 1 ? 1980 : 3201, 0; }
int nvmlDeviceGetPowerUsage(void*, unsigned*) { return not_supported; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) { return *bits = 0x4, 0; }
int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) { return *celsius = 61, 0; }
}
// NOLINTEND(readability-identifier-naming)
