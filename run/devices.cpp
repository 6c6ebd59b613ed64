#include "run/devices.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "gpu/streams/fake_stream.hpp"
#include "models/engines/deferred_engine.hpp"
#include "stages/options.hpp"
#ifdef MILLRACE_CUDA
#include "gpu/streams/cuda_stream.hpp"
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

/// The numbers of a list such as "0,1".
std::vector<int> resolved(std::string_view list, const std::string& kind) {
  std::vector<int> values;
  while (true) {
    const auto comma = list.find(',');
    values.push_back(number(list.substr(0, comma), kind));
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return values;
}

int gpus() {
#ifdef MILLRACE_CUDA
  return cuda_device_count();
#else
  return 0;
#endif
}

/// Compute capability as a number, 90 for 9.0. Libraries choose their kernels by it.
int capability([[maybe_unused]] int ordinal) {
#ifdef MILLRACE_CUDA
  const CudaDevice device = cuda_device(ordinal);
  return 10 * device.major + device.minor;
#else
  return 0;
#endif
}

std::string why_none() {
#ifdef MILLRACE_CUDA
  return why_no_cuda_device();
#else
  return "the program was built without CUDA";
#endif
}

constexpr bool built_for_cuda =
#ifdef MILLRACE_CUDA
    true;
#else
    false;
#endif

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// The device in the plan: a run can be resumed only on GPUs of the same compute capability.
std::string cuda_name(int ordinal) { return "cuda sm_" + std::to_string(capability(ordinal)); }

constexpr std::array<std::pair<std::string_view, Precision>, 4> precisions{
    {{"fp32", Precision::fp32}, {"tf32", Precision::tf32}, {"bf16", Precision::bf16}, {"fp16", Precision::fp16}}};

std::string_view word_of(Precision precision) {
  return std::find_if(precisions.begin(), precisions.end(),
                      [&](const auto& entry) { return entry.second == precision; })
      ->first;
}

Precision precision_named(const std::string& word, const Devices& devices) {
  const auto found =
      std::find_if(precisions.begin(), precisions.end(), [&](const auto& entry) { return entry.first == word; });
  if (found == precisions.end())
    throw UsageError("device.precision names '" + word + "'; a precision is auto, fp32, tf32, bf16 or fp16");
  const Precision precision = found->second;
  // use_cpu_level() refuses bf16 on CPUs without it. Fake devices accept every precision.
  if (devices.kind == Devices::Kind::cpu && precision != Precision::fp32 && precision != Precision::bf16)
    throw UsageError("device.precision names '" + word + "', but models run on the CPU; use fp32 or bf16");
  if (devices.lanes_wait_for_gpu() && !devices.native_bf16 &&
      (precision == Precision::bf16 || precision == Precision::tf32))
    throw UsageError("device.precision names '" + word + "', which " + devices.name +
                     " does not have; use fp16 or fp32, or a GPU of compute capability 8.0 or higher");
  return precision;
}

Devices cuda_devices(std::vector<int> ordinals, const std::string& kind) {
#ifndef MILLRACE_CUDA
  throw PackageError("device.kind is '" + kind + "', but this program was built without CUDA; leave it out or use cpu");
#endif
  const int found = gpus();
  for (const int ordinal : ordinals) {
    if (ordinal < found) continue;
    throw PackageError(
        "device.kind is '" + kind + "', but " +
        (found == 0 ? "no GPU was found (nvidia-smi says why)" : "the GPUs are 0 to " + std::to_string(found - 1)) +
        "; `millrace doctor` lists the GPUs");
  }
  Devices devices;
  devices.kind = Devices::Kind::cuda;
  devices.ordinals = std::move(ordinals);
  devices.name = cuda_name(devices.ordinals.front());
  devices.native_bf16 = capability(devices.ordinals.front()) >= 80;
#ifdef MILLRACE_CUDA
  // A GPU that is named twice has one row in the report.
  for (const int ordinal : std::set(devices.ordinals.begin(), devices.ordinals.end()))
    devices.buses.push_back(cuda_device(ordinal).bus);
#endif
  for (const int ordinal : devices.ordinals) {
    if (cuda_name(ordinal) == devices.name) continue;
    throw PackageError("device.kind is '" + kind + "', but these GPUs are of different kinds (" + devices.name + ", " +
                       cuda_name(ordinal) + "), so results would differ in their last bits; name GPUs of one kind");
  }
  return devices;
}

/// The first GPU, or the CPU if there is none.
/// A GPU that exists but cannot be used is an error, because users do not expect the slow run on the CPU.
Devices usable_or_cpu() {
  if (gpus() > 0) return cuda_devices({0}, "auto");
  const auto there = gpus_of_driver();
  if (!built_for_cuda || there.empty()) return {};
  throw PackageError("the GPU (" + joined(there) + ") cannot be used: " + why_none() +
                     "; run `millrace doctor` for details, or use --device cpu");
}

std::vector<int> first(int count) {
  std::vector<int> ordinals(static_cast<std::size_t>(count));
  std::iota(ordinals.begin(), ordinals.end(), 0);
  return ordinals;
}

/// Null on the CPU.
std::unique_ptr<Stream> make_stream(const Devices& devices, std::size_t index,
                                    [[maybe_unused]] const std::string& name) {
  switch (devices.kind) {
    case Devices::Kind::fake:
      return std::make_unique<FakeStream>(devices.ordinals[index],
                                          devices.fake_memory.empty() ? nullptr : devices.fake_memory[index],
                                          devices.fake_pinned);
    case Devices::Kind::simulated:
      return std::make_unique<SimulatedStream>(devices.simulated);
#ifdef MILLRACE_CUDA
    case Devices::Kind::cuda:
      return make_cuda_stream(devices.ordinals[index], name);
#endif
    default:
      return nullptr;
  }
}

}  // namespace

Devices find_devices(const std::string& kind, const std::string& engine) {
  constexpr std::string_view simulated = "simulated:";
  if (engine.starts_with(simulated)) {
    if (kind != "auto")
      throw UsageError("models.engine is '" + engine + "', so device.kind has no effect; leave it out");
    Devices devices;
    devices.kind = Devices::Kind::simulated;
    devices.table = std::make_shared<const SimulatedTable>(read_simulated_table(engine.substr(simulated.size())));
    devices.simulated = std::make_shared<SimulatedGpu>(devices.table->rates);
    devices.name = "simulated: " + devices.table->name;
    return devices;
  }
  if (engine != "auto" && engine != "torchscript" && engine != "aoti")
    throw UsageError("models.engine is '" + engine + "'; it can be auto, torchscript, aoti or simulated:TABLE.yaml");
  if (kind == "cpu") return {};
  if (kind == "auto") return usable_or_cpu();
  if (kind == "cuda") return cuda_devices({0}, kind);
  // Without a GPU it asks for GPU 0, and cuda_devices() reports that none was found.
  if (kind == "cuda:all") return cuda_devices(first(std::max(1, gpus())), kind);
  if (kind.starts_with("cuda:")) return cuda_devices(resolved(std::string_view(kind).substr(5), kind), kind);
  if (kind.starts_with("fake:")) {
    const std::string_view words = std::string_view(kind).substr(5);
    const auto colon = words.find(':');
    const int count = number(words.substr(0, colon), kind);
    if (count < 1) refuse(kind);
    Devices devices;
    devices.kind = Devices::Kind::fake;
    devices.ordinals = first(count);
    devices.name = "fake";
    devices.fake_pinned = std::make_shared<FakePinned>();
    for (int i = 0; colon != std::string_view::npos && i < count; ++i)
      devices.fake_memory.push_back(std::make_shared<FakeMemory>(number(words.substr(colon + 1), kind)));
    // The NVML of the tests knows a GPU of this name.
    for (const int ordinal : devices.ordinals) devices.buses.push_back("fake:" + std::to_string(ordinal));
    return devices;
  }
  refuse(kind);
}

Profiler profiler_of([[maybe_unused]] const Devices& devices) {
#ifdef MILLRACE_CUDA
  if (devices.kind == Devices::Kind::cuda) return {start_cuda_profiler, stop_cuda_profiler};
#endif
  return {};
}

std::vector<std::string> gpus_of_driver(const std::string& folder) {
  std::error_code none;
  std::vector<std::string> models;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none)) {
    std::ifstream file(entry.path() / "information");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("Model:")) models.push_back(line.substr(line.find_first_not_of(" \t", 6)));
    }
  }
  return models;
}

GpuState look_for_gpus() {
  std::vector<std::string> usable;
#ifdef MILLRACE_CUDA
  for (int ordinal = 0; ordinal < gpus(); ++ordinal) {
    const CudaDevice device = cuda_device(ordinal);
    usable.push_back(device.name + " (compute capability " + std::to_string(device.major) + "." +
                     std::to_string(device.minor) + ", " + readable_bytes(static_cast<double>(device.memory_bytes)) +
                     ")");
  }
#endif
  if (!usable.empty()) return {joined(usable), true};
  const auto there = gpus_of_driver();
  if (there.empty()) return {"none found; runs use the CPU", true};
  return {joined(there) + ", which this program cannot use: " + why_none(), !built_for_cuda};
}

Precision Precisions::of(const Task& task) const {
  const auto found = by_task.find(task.name);
  return found == by_task.end() ? Precision::fp32 : found->second;
}

bool Precisions::has(Precision precision) const {
  return std::any_of(by_task.begin(), by_task.end(), [&](const auto& entry) { return entry.second == precision; });
}

std::string Precisions::name(const Packages& packages) const {
  std::map<std::string_view, std::string_view> words;
  std::set<std::string_view> different;
  for (const auto& [folder, package] : packages)
    different.insert(words[package->task->name] = word_of(of(*package->task)));
  if (different.size() == 1) return std::string(*different.begin());
  std::string text;
  for (const auto& [task, word] : words)
    text += (text.empty() ? "" : ", ") + std::string(task) + " " + std::string(word);
  return text;
}

Precisions find_precisions(const std::string& name, const Devices& devices) {
  const bool on_gpu = devices.lanes_wait_for_gpu();
  Precisions found;
  for (const Task& task : task_table()) {
    const Precision of_gpu = devices.native_bf16 ? task.native_precision : task.older_precision;
    found.by_task[std::string(task.name)] = on_gpu ? of_gpu : Precision::fp32;
  }
  if (name == "auto") return found;
  if (name.find('=') == std::string::npos) {
    for (auto& [task, precision] : found.by_task) precision = precision_named(name, devices);
    return found;
  }
  std::istringstream parts(name);
  for (std::string part; std::getline(parts, part, ',');) {
    const std::size_t equals = part.find('=');
    const auto entry = found.by_task.find(part.substr(0, equals));
    if (equals == std::string::npos || entry == found.by_task.end()) {
      std::vector<std::string> tasks;
      for (const auto& [task, precision] : found.by_task) tasks.push_back(task);
      throw UsageError("device.precision has the part '" + part +
                       "'; expected TASK=PRECISION with a task of: " + joined(tasks));
    }
    entry->second = precision_named(part.substr(equals + 1), devices);
    if (entry->second == Precision::tf32)
      throw UsageError("device.precision is '" + name + "', but tf32 applies to all models; use 'tf32' alone");
  }
  return found;
}

std::unique_ptr<Device> make_device(const Devices& devices, std::size_t index, const std::string& name) {
  auto stream = make_stream(devices, index, name);
  return stream == nullptr ? std::make_unique<Device>() : std::make_unique<Device>(std::move(stream));
}

std::shared_ptr<Nvjpeg> open_nvjpeg(const Devices& devices) {
  if (devices.kind != Devices::Kind::cuda && devices.kind != Devices::Kind::fake)
    throw UsageError("decode.nvjpeg needs a GPU, but this run uses none (device: " + devices.name +
                     "); leave it out, or run on a machine with a GPU");
  std::vector<Nvjpeg::MakeStream> gpus;
  for (std::size_t index = 0; index < devices.ordinals.size(); ++index) {
    if (devices.first_of_gpu(index) == index)
      gpus.emplace_back([&devices, index] { return make_stream(devices, index, "JPEG engine"); });
  }
  return Nvjpeg::open(gpus);
}

std::function<std::shared_ptr<void>(std::size_t bytes)> pixel_memory(const Devices& devices) {
#ifdef MILLRACE_CUDA
  if (devices.kind == Devices::Kind::cuda) {
    // All GPUs can copy from this pinned memory. The stream is needed only for its pool.
    const std::shared_ptr<Stream> pool = make_cuda_stream(devices.ordinals.front(), "pixels");
    return [pool](std::size_t bytes) { return pool->allocate_mapped(bytes); };
  }
#endif
  if (devices.kind == Devices::Kind::fake) {
    return [pool = devices.fake_pinned](std::size_t bytes) { return pool->take(bytes); };
  }
  if (devices.kind == Devices::Kind::simulated) {
    const auto pool = std::make_shared<SimulatedStream>(devices.simulated);
    return [pool](std::size_t bytes) { return pool->allocate_mapped(bytes); };
  }
  return {};
}

EngineFactory engines_on(const Devices& devices, std::size_t index, const Precisions& precisions,
                         EngineFactory factory) {
  if (devices.kind == Devices::Kind::simulated) {
    return [table = devices.table, precisions](const Package& package, const EngineOptions&) {
      return make_simulated_engine(package, table, precisions.of(*package.task));
    };
  }
  // Fake devices compute on the CPU. DeferredEngine makes their calls asynchronous, as on a GPU.
  const int ordinal = devices.kind == Devices::Kind::cuda ? devices.ordinals[index] : -1;
  EngineFactory engines = [factory = std::move(factory), ordinal, precisions](const Package& package,
                                                                              EngineOptions options) {
    options.device = ordinal;
    options.precision = precisions.of(*package.task);
    return factory(package, options);
  };
  if (devices.kind != Devices::Kind::fake) return engines;
  return [engines = std::move(engines)](const Package& package, const EngineOptions& options) {
    return std::make_shared<DeferredEngine>(package, engines(package, options));
  };
}

}  // namespace millrace
