#include "run/planned_models.hpp"

#include <algorithm>

#include "models/exec_shapes.hpp"

namespace millrace {

std::vector<PlannedModel> planned_models(const std::vector<PlannedView>& views, const Packages& packages) {
  std::vector<PlannedModel> all;
  for (std::size_t view = 0; view < views.size(); ++view) {
    const auto& links = views[view].chain->links();
    for (std::size_t link = 0; link < links.size(); ++link) {
      for (const ModelUse& use : links[link].info.models) {
        if (use.folder.empty()) continue;
        const bool known = std::any_of(all.begin(), all.end(), [&](const PlannedModel& one) {
          return one.link == link && one.use.folder == use.folder && one.use.padded == use.padded &&
                 one.use.of_pictures == use.of_pictures && one.use.calls == use.calls;
        });
        if (!known) all.push_back({use, packages.at(use.folder), link, view, links[link].info.name});
      }
    }
  }
  return all;
}

std::vector<std::vector<StageModels::PictureInput>> picture_inputs(const std::vector<PlannedView>& views) {
  std::vector<std::vector<StageModels::PictureInput>> all;
  for (const PlannedView& view : views) {
    auto& inputs = all.emplace_back();
    std::size_t buffer = 0;
    for (const auto& link : view.chain->links()) {
      for (const ModelUse& use : link.info.models) {
        const std::size_t own = buffer++;  // the same for this stage in every view, so that views share its buffer
        const bool known =
            std::any_of(inputs.begin(), inputs.end(), [&](const auto& input) { return input.folder == use.folder; });
        if (use.of_pictures && !use.folder.empty() && !known) inputs.push_back({use.folder, own});
      }
    }
  }
  return all;
}

CallShape call_shape(const PlannedModel& model, int batch_size, const CallLimits& limits) {
  return {rows_of(model.use, *model.package, batch_size, &limits), model.use.padded};
}

std::vector<CallShape> exec_shapes(const CallShape& largest) {
  // The row counts of a method, largest first.
  const auto counts_of = [&](const std::string& method, int rows) {
    const auto libraries = largest.row_counts.find(method);
    if (libraries == largest.row_counts.end() || libraries->second.empty())
      return largest.padded ? padded_shapes(rows) : std::vector{rows};
    std::vector<int> counts{rows};
    for (auto count = libraries->second.rbegin(); count != libraries->second.rend(); ++count) {
      if (*count < rows) counts.push_back(*count);
    }
    return counts;
  };
  std::vector<CallShape> shapes;
  // Shape i has the i-th row count of each method. A method with fewer counts repeats its smallest.
  for (bool more = true; more;) {
    const std::size_t index = shapes.size();
    CallShape shape = largest;
    more = false;
    for (const auto& [method, rows] : largest.rows) {
      const auto all = counts_of(method, rows);
      shape.rows[method] = all[std::min(index, all.size() - 1)];
      more = more || index + 1 < all.size();
    }
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

}  // namespace millrace
