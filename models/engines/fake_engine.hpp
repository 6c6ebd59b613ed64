#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "models/engine.hpp"

namespace millrace {

/// A fault in one call of a fake engine. Calls are counted from 1, over all methods.
struct ScriptedFault {
  enum class Kind {
    oom,     ///< throws OutOfMemoryError
    nan,     ///< NaN in all floats of the first row of each output
    throws,  ///< throws ModelError
    shape,   ///< the last dimension of the first output is one longer
  };
  Kind kind = Kind::throws;
  int call = 1;
};

/// Reads a script such as "oom@17,nan@40,throw@90,shape@3". An empty script has no faults.
/// Throws std::invalid_argument, which names the wrong part.
std::vector<ScriptedFault> parse_faults(std::string_view script);

/// An engine for tests: a function instead of a model, with faults on demand.
/// It needs no LibTorch, so every build has it.
class FakeEngine final : public Engine {
 public:
  using Function = std::function<std::vector<Tensor>(std::string_view method, std::span<const Tensor> inputs)>;

  explicit FakeEngine(Function function, std::string_view faults = "", std::int64_t memory_bytes = 0);

  /// A function that returns zeros in the shapes that the package promises.
  static Function zeros_of(Package package);

  using Engine::call;
  /// `device` must be that of the host. DeferredEngine serves others.
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override;
  std::int64_t memory_bytes() const override { return memory_bytes_; }

  /// Calls of a method so far, including failed ones.
  int calls(std::string_view method) const;

 private:
  const Function function_;
  const std::vector<ScriptedFault> faults_;
  const std::int64_t memory_bytes_;
  mutable std::mutex mutex_;
  std::map<std::string, int, std::less<>> calls_;
  int all_calls_ = 0;
};

}  // namespace millrace
