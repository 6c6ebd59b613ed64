#include "models/engines/simulated_engine.hpp"

#include <yaml-cpp/yaml.h>

#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "models/yaml_section.hpp"

namespace millrace {
namespace {

class SimulatedEngine final : public Engine {
 public:
  SimulatedEngine(Package package, std::shared_ptr<const SimulatedTable> table, Precision precision)
      : package_(std::move(package)), table_(std::move(table)), image_type_(millrace::image_type(precision)) {}

  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override {
    auto* stream = dynamic_cast<SimulatedStream*>(device.stream());
    if (stream == nullptr) throw std::logic_error("a simulated engine on a device that is not simulated");
    const Method& called = package_.method(method);
    const CallRows rows = called.call_of(inputs);
    std::vector<Tensor> outputs;
    for (const TensorSpec& spec : outputs_of(package_, method, rows, image_type_)) {
      outputs.push_back(device.empty(spec.shape, spec.dtype));
      // The host reads outputs of one or two dimensions, so they are zeroed.
      // Larger outputs go to operations, which are simulated too.
      if (spec.shape.size() <= 2) std::memset(outputs.back().data, 0, outputs.back().bytes());
    }
    // It exists: make_simulated_engine() has checked all methods.
    const SimulatedCall& call = table_->calls.find(method)->second;
    stream->compute(call.call_s + call.each_s * static_cast<double>(called.rows(rows)));
    return outputs;
  }
  DType image_type() const override { return image_type_; }
  std::int64_t memory_bytes() const override { return package_.file_bytes(); }

 private:
  const Package package_;
  const std::shared_ptr<const SimulatedTable> table_;
  const DType image_type_;
};

}  // namespace

SimulatedTable read_simulated_table(const std::string& file) {
  YAML::Node root;
  try {
    root = YAML::LoadFile(file);
  } catch (const YAML::BadFile&) {
    throw PackageError("'" + file + "', the table of a simulated engine, cannot be read; check its path");
  } catch (const YAML::Exception& error) {
    throw PackageError(file + ": " + error.what());
  }
  YamlSection section(root, file, "");
  const auto positive = [](YamlSection& from, const std::string& key) {
    const double value = from.real(key);
    if (value < 0) from.fail(key, "must not be below 0");
    return value;
  };
  SimulatedTable table;
  table.file = file;
  table.name = section.text("name");
  table.rates.upload_bytes_per_s = 1e9 * positive(section, "upload_gb_per_s");
  table.rates.download_bytes_per_s = 1e9 * positive(section, "download_gb_per_s");
  for (const auto& [key, bytes] : {std::pair{"upload_gb_per_s", table.rates.upload_bytes_per_s},
                                   {"download_gb_per_s", table.rates.download_bytes_per_s}}) {
    // Otherwise a copy would never end.
    if (bytes == 0) section.fail(key, "must be above 0");
  }
  constexpr std::string_view milliseconds = "_ms";
  // Any key with this ending, because only the rows of operations contain their names.
  for (const std::string& key : section.keys()) {
    if (key.ends_with(milliseconds))
      table.rates.operations_s[key.substr(0, key.size() - milliseconds.size())] = positive(section, key) / 1e3;
  }
  // A table needs only the methods that its runs call (make_simulated_engine).
  for (const Task& task : task_table()) {
    for (const std::string& method : task.method_names) {
      if (!section.has(method)) continue;
      YamlSection call = section.section(method);
      table.calls[method] = {positive(call, "call_ms") / 1e3, positive(call, "each_ms") / 1e3};
      call.close();
    }
  }
  section.close();
  return table;
}

std::shared_ptr<Engine> make_simulated_engine(const Package& package, std::shared_ptr<const SimulatedTable> table,
                                              Precision precision) {
  for (const Method& method : package.methods) {
    if (table->calls.count(method.name) == 0)
      throw PackageError(table->file + ": has no times for the method '" + method.name + "' of " + package.name +
                         "; add a section " + method.name + " with call_ms and each_ms");
  }
  return std::make_shared<SimulatedEngine>(package, std::move(table), precision);
}

}  // namespace millrace
