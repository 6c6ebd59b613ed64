#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "run/setup.hpp"
#include "stages/chain.hpp"

namespace millrace {

/// A stage object and its link in the chain of a view.
template <class Stage>
struct LinkedStage {
  const ChainLink* link = nullptr;
  std::shared_ptr<Stage> stage;
};

/// The stages of one section, by view and by position in the section. `make` makes the stage of a link.
/// Views whose stage has the recipe's options share one object.
template <class Stage, class Make>
std::vector<std::vector<LinkedStage<Stage>>> make_stages(const std::vector<PlannedView>& views, Section section,
                                                         const Make& make) {
  std::vector<std::vector<LinkedStage<Stage>>> of_views;
  std::vector<std::shared_ptr<Stage>> shared;
  for (const PlannedView& view : views) {
    auto& stages = of_views.emplace_back();
    for (const ChainLink* link : view.chain->of(section)) {
      const std::size_t index = stages.size();
      if (!link->has_recipe_options) {
        stages.push_back({link, make(*link)});
        continue;
      }
      if (shared.size() <= index) shared.resize(index + 1);
      if (shared[index] == nullptr) shared[index] = make(*link);
      stages.push_back({link, shared[index]});
    }
  }
  return of_views;
}

}  // namespace millrace
