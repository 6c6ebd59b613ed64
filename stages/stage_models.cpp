#include "stages/stage_models.hpp"

#include <algorithm>
#include <stdexcept>

#include "models/cache.hpp"
#include "models/call_limits.hpp"
#include "models/exec_shapes.hpp"

namespace millrace {
namespace {

const ModelUse::Calls& calls_of(const ModelUse& use, std::string_view method) {
  const auto found = std::find_if(use.calls.begin(), use.calls.end(),
                                  [&](const ModelUse::Calls& calls) { return calls.method == method; });
  if (found == use.calls.end())
    throw std::logic_error("a stage's info() names the task " + std::string(use.task) +
                           ", but no calls of its method '" + std::string(method) + "'");
  return *found;
}

// Maximum rows of a call by options and package. They are part of the plan, unlike limits of memory.
int allowed(const ModelUse& use, const Package& package, int batch_size, std::string_view method) {
  const int wanted = calls_of(use, method).rows;
  return std::min(wanted > 0 ? wanted : std::max(1, batch_size), package.method(method).maximum);
}

}  // namespace

StageModel::StageModel(StageModels& models, const ModelUse& use) : models_(models), use_(use) {
  if (use.folder.empty()) throw std::invalid_argument("a stage without its " + std::string(find_task(use.task).model));
  package_ = models.packages.at(use.folder);
  if (use.check) use.check(*package_);
}

int StageModel::maximum(std::string_view method) const { return allowed(use_, *package_, models_.batch_size, method); }

// Ask before each call: another lane of the device may lower it at any time.
int StageModel::limit(std::string_view method) const {
  return models_.limits == nullptr ? CallLimits::none : models_.limits->max_rows(package_->id(), method);
}

int StageModel::padded(int rows, std::string_view method, bool exact) const {
  if (!(use_.padded || use_.one_shape)) return rows;
  if (const auto counts = engine()->row_counts(method); !counts.empty())
    return use_.padded && !exact ? computed_rows(rows, counts) : rows;
  if (!use_.one_shape) return padded_rows(rows, maximum(method));
  return exact ? rows : std::max(rows, std::min(maximum(method), limit(method)));
}

bool StageModel::other_shape(std::string_view method) const {
  return use_.one_shape && limit(method) < maximum(method) && engine()->row_counts(method).empty();
}

std::shared_ptr<Engine> StageModel::engine() const { return models_.cache->acquire(*package_); }

MethodRows rows_of(const ModelUse& use, const Package& package, int batch_size, const CallLimits* limits) {
  // All methods of the package, because a warm-up calls all of them.
  MethodRows rows;
  for (const Method& method : package.methods) {
    const int limit = limits == nullptr ? CallLimits::none : limits->max_rows(package.id(), method.name);
    rows[method.name] = std::min(allowed(use, package, batch_size, method.name), limit);
  }
  return rows;
}

}  // namespace millrace
