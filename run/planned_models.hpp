#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/call_limits.hpp"
#include "run/setup.hpp"

namespace millrace {

/// A package as one stage calls it, for some or all views.
struct PlannedModel {
  ModelUse use;
  std::shared_ptr<const Package> package;
  std::size_t link = 0;  ///< of the chain
  std::size_t view = 0;  ///< the first that has it
};

/// Every model that the chains of these views call, in their order; a package that several stages call stands there for
/// each of them, and once for views that call it alike.
std::vector<PlannedModel> planned_models(const std::vector<PlannedView>& views, const Packages& packages);

/// For each view, what `preprocess` makes.
std::vector<std::vector<StageModels::PictureInput>> picture_inputs(const std::vector<PlannedView>& views);

/// Rows of the largest call of each method, and whether calls for fewer have powers of two of them.
struct CallShape {
  MethodRows rows;
  bool padded = false;
};
CallShape call_shape(const PlannedModel& model, int batch_size, const CallLimits& limits);

/// The shapes of all calls that there may be where the largest is this one, largest first.
std::vector<CallShape> exec_shapes(const CallShape& largest);

}  // namespace millrace
