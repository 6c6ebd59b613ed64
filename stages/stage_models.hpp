#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/engine.hpp"
#include "stages/stage.hpp"

namespace millrace {

class CallLimits;
class ModelCache;

/// Packages by the folder under which they were named.
using Packages = std::map<std::string, std::shared_ptr<const Package>>;

/// A model as a stage calls it, on its lane's device.
class StageModel {
 public:
  StageModel(StageModels& models, const ModelUse& use);

  const Package& package() const { return *package_; }
  std::shared_ptr<const Package> shared_package() const { return package_; }
  const std::string& folder() const { return use_.folder; }

  /// Rows of a call at most, by options and package.
  int maximum(std::string_view method) const;
  /// What memory allows by now.
  int limit(std::string_view method) const;
  /// Rows that a call for `rows` of them has, of which the last are padding.
  int padded(int rows, std::string_view method) const;

  /// Loads the model where it is not there.
  std::shared_ptr<Engine> engine() const;

 private:
  StageModels& models_;
  const ModelUse use_;
  std::shared_ptr<const Package> package_;
};

/// The models of a run on one device, as far as stages see them.
class StageModels {
 public:
  /// A package whose input `preprocess` makes of the pictures of a view. Inputs with one number are never needed at
  /// the same time, so they may lie in one buffer.
  struct PictureInput {
    std::string folder;
    std::size_t buffer = 0;
    bool operator==(const PictureInput&) const = default;
  };

  int batch_size = 1;
  const Packages& packages;
  ModelCache* cache = nullptr;                              ///< null outside of lanes: nothing is called
  CallLimits* limits = nullptr;                             ///< of calls on the device; null: none
  std::function<DType(const Package&)> images{};            ///< type of a model's pictures; empty: f32
  std::vector<std::vector<PictureInput>> picture_inputs{};  ///< by view

  const Package& package(const std::string& folder) const { return *packages.at(folder); }
};

/// Rows of a call of each method: what the stage's options, the package and memory allow.
MethodRows rows_of(const ModelUse& use, const Package& package, int batch_size, const CallLimits* limits);

}  // namespace millrace
