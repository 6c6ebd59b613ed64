#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/device.hpp"
#include "models/cache.hpp"
#include "run/config.hpp"
#include "run/devices.hpp"
#include "run/planned_models.hpp"
#include "run/profile_inputs.hpp"
#include "run/resolve.hpp"
#include "stages/chain.hpp"

namespace millrace {

/// A device, the models of a config on it, and inputs for them that the stages made from pictures.
/// All functions are called on one thread.
class ProfileLane {
 public:
  /// `config`, `packages` and `devices` must outlive it. It uses the first of the devices.
  ProfileLane(const Config& config, const Packages& packages, const Devices& devices,
              std::vector<std::string> view_names, const EngineFactory& factory);

  /// Runs the stages on some of the pictures, one at a time, and records the inputs of the model calls.
  /// Boxes are those of the manifest and of the detector. If there are none, they come from grid_of_boxes().
  /// Returns notes for the user about views in which no picture could be decoded.
  /// Calls that fail record their inputs too. Their errors are left to the measurement. Throws DeviceError.
  std::vector<std::string> record(const ChosenPictures& pictures, std::uint64_t seed,
                                  const std::function<bool()>& stopped);

  /// Inputs of a call, from the recorded ones. Without recorded ones, those of a warm-up call. Throws std::bad_alloc.
  std::vector<Tensor> inputs(const Package& package, const Method& method, int rows);
  /// Whether inputs() has recorded ones.
  [[nodiscard]] bool has_inputs(const Package& package, const Method& method) const {
    return recorded_->has(package, method.name);
  }

  /// The loaded model. Loads it if necessary.
  std::shared_ptr<Engine> engine(const Package& package) { return cache_.acquire(package); }
  /// Frees memory that is kept for later calls, also after a call that ran out of memory.
  void give_back(Engine& engine);
  Device& device() { return *device_; }
  const std::vector<PlannedView>& views() const { return views_; }
  const ResolvedConfig& resolved() const { return resolved_; }

 private:
  enum class Boxes { as_planned, of_detector, grid };
  bool run(const Item& item, Boxes boxes, std::uint64_t seed, std::string& failure);
  bool lacks_inputs(std::size_t view) const;

  const Config& config_;
  const Packages& packages_;
  const ResolvedConfig resolved_;
  const std::vector<PlannedView> views_;
  const std::shared_ptr<RecordedInputs> recorded_ = std::make_shared<RecordedInputs>();
  const std::unique_ptr<Device> device_;
  ModelCache cache_;
  StageModels models_;
  Counters counters_;
  std::vector<View> view_names_;
  PixelSource source_;
  const std::string no_folder_;
  const StageContext context_;
};

}  // namespace millrace
