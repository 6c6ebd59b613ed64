#pragma once

#include <memory>
#include <string>
#include <type_traits>

#include "stages/stage.hpp"

namespace millrace {

// stage_entry<S>() makes the row of stage class S. S has these members:
// - `struct Options` with `visit`
// - `static constexpr const char* name`
// - `static StageInfo info(const Options&)`
// - a constructor that takes (const Options&, const StageContext&)
// - the `run` of its base class; the section says which: FrameStage, LaneStage or BatchStage
//
// Only the source of S includes this header. At its end it instantiates the function:
//
//     template StageEntry stage_entry<S>();

/// Whether a recipe may name the stage several times.
/// `struct Own` then has the stage's fields. Its constructor takes the stage's name in the recipe.
/// `info` takes (Options, Own), and the constructor of S takes (Options, StageContext, Own).
template <class S>
concept HasOwn = requires {
  typename S::Own;
};

template <class S>
StageInfo info_of(const typename S::Options& options, const std::string& name) {
  StageInfo info;
  if constexpr (HasOwn<S>) {
    const auto own = std::make_shared<const typename S::Own>(name);
    info = S::info(options, *own);
    info.own = own;
  } else {
    info = S::info(options);
  }
  info.name = name;
  return info;
}

template <class S>
StageEntry stage_entry() {
  using Options = typename S::Options;
  StageEntry entry;
  entry.name = S::name;
  entry.options = describe_options<Options>();
  entry.describe = [](const StageOptions& options) { return describe_options(std::any_cast<const Options&>(options)); };
  entry.parse = [](const OptionValues& values, const std::string& name) {
    return StageOptions(parse_options<Options>(name, values));
  };
  entry.info = [](const StageOptions& options, const std::string& name) {
    return info_of<S>(std::any_cast<const Options&>(options), name);
  };
  const auto make = [](const StageOptions& options, const StageContext& context,
                       [[maybe_unused]] const StageInfo& info) {
    if constexpr (HasOwn<S>) {
      return std::make_unique<S>(std::any_cast<const Options&>(options), context,
                                 *static_cast<const typename S::Own*>(info.own.get()));
    } else {
      return std::make_unique<S>(std::any_cast<const Options&>(options), context);
    }
  };
  if constexpr (std::is_base_of_v<FrameStage, S>) {
    entry.make_frame_stage = make;
  } else if constexpr (std::is_base_of_v<LaneStage, S>) {
    entry.make_lane_stage = make;
  } else {
    static_assert(std::is_base_of_v<BatchStage, S>, "a stage is a FrameStage, a LaneStage or a BatchStage");
    entry.make_batch_stage = make;
  }
  return entry;
}

}  // namespace millrace
