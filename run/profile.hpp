#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "models/engine.hpp"
#include "run/config.hpp"
#include "run/devices.hpp"
#include "run/profile_inputs.hpp"
#include "run/setup.hpp"

namespace millrace {

/// The settings and packages of one way to run the models, such as one precision.
struct ProfileCombination {
  std::string name{};  ///< of what differs from other combinations, such as "bf16 aoti"; empty if there is only one
  Config config;
  Packages packages{};
  bool only_variants = false;  ///< leaves out packages without a compiled variant
  bool channels_last = true;   ///< EngineOptions::channels_last
  bool graphs = false;         ///< calls are CUDA graphs
};

struct ProfileRequest {
  const std::vector<ProfileCombination>& combinations;  ///< at least one; all have the same stages and packages
  const Devices& devices;                               ///< the first of them runs the models
  const ChosenPictures& pictures;
  std::vector<int> batches, boxes;  ///< rows of the calls, ascending: pictures, and rows of other kinds
  double seconds = 1;               ///< for the repeated calls of each size and combination
  std::uint64_t seed = 0;           ///< of boxes in pictures without any
};

/// Seconds of repeated calls.
struct CallTimes {
  std::size_t calls = 0;
  double median_s = 0, p5_s = 0, p95_s = 0;
};
/// Percentiles by nearest rank. `seconds` has at least one value.
CallTimes times_of(std::vector<double> seconds);

/// The measurement of one method at one size, in one combination.
struct ProfileRow {
  std::vector<std::string> views;   ///< that use the package
  std::vector<std::string> stages;  ///< that call it
  std::string package;              ///< its name
  std::string method;
  RowKind unit = RowKind::picture;
  int size = 1;                 ///< rows of a call
  std::size_t combination = 0;  ///< index
  std::string precision;        ///< "bf16"
  std::string engine;           ///< "torchscript", "aoti" or "simulated"
  std::string layout;       ///< of the weights of convolutions: "channels-last" or "channels-first"; empty: not ours
  bool graph = false;       ///< calls were CUDA graphs
  bool real_inputs = true;  ///< false: those of a warm-up call, since no stage called the method
  std::optional<CallTimes> times{};            ///< nothing: memory ran out
  std::optional<std::int64_t> memory_bytes{};  ///< the peak of a call above the memory before; nothing if unknown
  std::optional<int> gpu_percent{};            ///< share of the time in which a kernel ran; nothing without a GPU
  std::optional<double> ratio{};               ///< of its rate to that of the first combination; nothing without others
  bool optimum = false;                        ///< the smallest size within 3 % of the best rate

  /// Rows per second; 0 if memory ran out.
  [[nodiscard]] double rate() const { return times ? size / times->median_s : 0; }
};

/// The smallest size whose rate is within 3 % of the best, as an index. Nothing if no row has a rate.
/// `rows` are of one method and one combination, in any order.
std::optional<std::size_t> optimum(std::span<const ProfileRow> rows);

/// What profile() tells while it works.
struct ProfileListener {
  std::function<void(const std::string& text)> note;
  /// The rows of one method: by size, then by combination. Sizes that were not finished before a stop are missing.
  std::function<void(const std::vector<ProfileRow>& rows)> measured;
  std::function<bool()> stopped;  ///< true: end soon, with what was measured
};

/// Calls each method of each package at each size, outside of the pipeline, and measures time and memory.
///
/// Inputs are those that the stages make from the pictures. Combinations take turns, call by call.
/// Sizes above the maximum of a package are left out, with a note. A size that does not fit gets a row without times.
/// It writes nothing. Throws PackageError, ModelError, DeviceError.
void profile(const ProfileRequest& request, const EngineFactory& factory, const ProfileListener& listener);

}  // namespace millrace
