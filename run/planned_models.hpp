#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/call_limits.hpp"
#include "run/setup.hpp"

namespace millrace {

/// A package that one stage calls, for some or all views.
struct PlannedModel {
  ModelUse use;
  std::shared_ptr<const Package> package;
  std::size_t link = 0;  ///< position of the stage in the chain
  std::size_t view = 0;  ///< the first view whose stage calls it
  std::string stage;     ///< name of the stage in the recipe
};

/// Every model that the chains of these views call, in their order.
/// A package has one entry for each stage that calls it. Views whose stage calls it in the same way share the entry.
std::vector<PlannedModel> planned_models(const std::vector<PlannedView>& views, const Packages& packages);

/// The inputs that `preprocess` makes, by view.
std::vector<std::vector<StageModels::PictureInput>> picture_inputs(const std::vector<PlannedView>& views);

/// The rows of the largest call of each method, and whether smaller calls of TorchScript are padded to a power of two.
struct CallShape {
  MethodRows rows;
  bool padded = false;
  std::map<std::string, std::vector<int>, std::less<>> row_counts{};  ///< Engine::row_counts, by method
};
CallShape call_shape(const PlannedModel& model, int batch_size, const CallLimits& limits);

/// All shapes that models compute if the largest call is this one, largest first.
std::vector<CallShape> exec_shapes(const CallShape& largest);

}  // namespace millrace
