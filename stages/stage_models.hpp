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

/// Packages by folder, as the options name it.
using Packages = std::map<std::string, std::shared_ptr<const Package>>;

/// A model of a stage, on the device of the stage's lane.
class StageModel {
 public:
  /// Loads nothing. `models` must outlive this object.
  /// Throws std::invalid_argument if the options name no package.
  StageModel(StageModels& models, const ModelUse& use);

  const Package& package() const { return *package_; }
  std::shared_ptr<const Package> shared_package() const { return package_; }
  const std::string& folder() const { return use_.folder; }

  /// Maximum rows of a call by options and package.
  int maximum(std::string_view method) const;
  /// Maximum rows of a call that memory allows, as far as known now.
  int limit(std::string_view method) const;
  /// The rows of a call for `rows` rows with padding. The last rows are the padding. Only for stages in a lane.
  /// `exact`: after a failure. Rows of variants and of stages with one shape are not padded then.
  int padded(int rows, std::string_view method, bool exact) const;
  /// Whether calls of the stage should all have the same rows.
  bool one_shape() const { return use_.one_shape; }
  /// Whether memory allows fewer rows than all calls should have.
  bool other_shape(std::string_view method) const;

  /// The loaded model. Loads it if the cache does not have it. Only for stages in a lane.
  std::shared_ptr<Engine> engine() const;

 private:
  StageModels& models_;
  const ModelUse use_;
  std::shared_ptr<const Package> package_;
};

/// The part of a run's models on one device that stages use.
class StageModels {
 public:
  /// A package whose input `preprocess` makes from the pictures of a view.
  /// Inputs with the same buffer number are never needed at the same time, so they share memory.
  struct PictureInput {
    std::string folder;
    std::size_t buffer = 0;
    bool operator==(const PictureInput&) const = default;
  };

  int batch_size = 1;
  const Packages& packages;
  ModelCache* cache = nullptr;                              ///< null outside of lanes, where no stage calls a model
  CallLimits* limits = nullptr;                             ///< limits of calls on the device; null: none
  std::function<DType(const Package&)> images{};            ///< type of the pictures in a model's input; empty: f32
  std::vector<std::vector<PictureInput>> picture_inputs{};  ///< by view

  const Package& package(const std::string& folder) const { return *packages.at(folder); }
};

/// Maximum rows of a call of each method, by the options of the stage, the package and `limits` of memory.
MethodRows rows_of(const ModelUse& use, const Package& package, int batch_size, const CallLimits* limits);

}  // namespace millrace
