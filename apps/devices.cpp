#include "apps/devices.hpp"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <string_view>
#include <utility>

#include "gpu/fake_stream.hpp"
#include "gpu/host_device.hpp"
#include "gpu/stream_device.hpp"
#include "models/deferred_engine.hpp"
#include "stages/options.hpp"
#ifdef MILLRACE_CUDA
#include "gpu/cuda_stream.hpp"
#endif

namespace millrace {
namespace {

[[noreturn]] void refuse(const std::string& kind) {
  throw UsageError("device.kind is '" + kind + "'; it can be auto, cpu, cuda, cuda:0,1 or cuda:all");
}

int number(std::string_view text, const std::string& kind) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < 0) refuse(kind);
  return value;
}

std::vector<int> numbers(std::string_view list, const std::string& kind) {
  std::vector<int> values;
  while (true) {
    const auto comma = list.find(',');
    values.push_back(number(list.substr(0, comma), kind));
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  auto sorted = values;
  std::sort(sorted.begin(), sorted.end());
  if (std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end()) refuse(kind);
  return values;
}

int gpus() {
#ifdef MILLRACE_CUDA
  return cuda_device_count();
#else
  return 0;
#endif
}

/// Kernels are chosen by compute capability.
std::string cuda_name([[maybe_unused]] int ordinal) {
#ifdef MILLRACE_CUDA
  const CudaDevice device = cuda_device(ordinal);
  return "cuda sm_" + std::to_string(device.major) + std::to_string(device.minor);
#else
  return {};
#endif
}

Devices cuda_devices(std::vector<int> ordinals, const std::string& kind) {
#ifndef MILLRACE_CUDA
  throw PackageError("device.kind is '" + kind +
                     "', and this program was built without CUDA; leave it out or say cpu");
#endif
  const int found = gpus();
  for (const int ordinal : ordinals) {
    if (ordinal < found) continue;
    throw PackageError("device.kind is '" + kind + "', and " +
                       (found == 0 ? "no GPU was found (nvidia-smi says why)"
                                   : "there are GPUs 0 to " + std::to_string(found - 1)) +
                       "; `millrace doctor` shows what is there");
  }
  Devices devices{Devices::Kind::cuda, std::move(ordinals), {}};
  devices.name = cuda_name(devices.ordinals.front());
  for (const int ordinal : devices.ordinals) {
    if (cuda_name(ordinal) == devices.name) continue;
    throw PackageError("device.kind is '" + kind + "', and these GPUs are of several kinds (" + devices.name + ", " +
                       cuda_name(ordinal) + "), whose results differ in their last bits; name those of one kind");
  }
  return devices;
}

std::vector<int> first(int count) {
  std::vector<int> ordinals(static_cast<std::size_t>(count));
  std::iota(ordinals.begin(), ordinals.end(), 0);
  return ordinals;
}

}  // namespace

Devices find_devices(const std::string& kind) {
  if (kind == "cpu") return {};
  if (kind == "auto") return gpus() == 0 ? Devices{} : cuda_devices({0}, kind);
  if (kind == "cuda") return cuda_devices({0}, kind);
  if (kind == "cuda:all") return cuda_devices(first(std::max(1, gpus())), kind);
  if (kind.starts_with("cuda:")) return cuda_devices(numbers(std::string_view(kind).substr(5), kind), kind);
  if (kind.starts_with("fake:")) {
    const int count = number(std::string_view(kind).substr(5), kind);
    if (count < 1) refuse(kind);
    return {Devices::Kind::fake, first(count), "fake"};
  }
  refuse(kind);
}

std::unique_ptr<Device> make_device(const Devices& devices, std::size_t index) {
  const int ordinal = devices.ordinals[index];
  switch (devices.kind) {
    case Devices::Kind::fake:
      return std::make_unique<StreamDevice>(std::make_unique<FakeStream>(ordinal));
#ifdef MILLRACE_CUDA
    case Devices::Kind::cuda:
      return std::make_unique<StreamDevice>(make_cuda_stream(ordinal));
#endif
    default:
      return std::make_unique<HostDevice>();
  }
}

std::function<std::shared_ptr<void>(std::size_t bytes)> pixel_memory([[maybe_unused]] const Devices& devices) {
#ifdef MILLRACE_CUDA
  if (devices.kind == Devices::Kind::cuda) {
    // Pinned memory serves all GPUs; the stream is there for its pool.
    const std::shared_ptr<Stream> pool = make_cuda_stream(devices.ordinals.front());
    return [pool](std::size_t bytes) { return pool->allocate_mapped(bytes); };
  }
#endif
  return {};
}

EngineFactory engines_on(const Devices& devices, std::size_t index, EngineFactory factory) {
  const int ordinal = devices.ordinals[index];
  switch (devices.kind) {
    case Devices::Kind::fake:
      return [factory = std::move(factory)](const Package& package, const EngineOptions& options) {
        return std::make_shared<DeferredEngine>(package, factory(package, options));
      };
    case Devices::Kind::cuda:
      return [factory = std::move(factory), ordinal](const Package& package, EngineOptions options) {
        options.device = ordinal;
        return factory(package, options);
      };
    default:
      return factory;
  }
}

}  // namespace millrace
