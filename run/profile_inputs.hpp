#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "io/input/source.hpp"
#include "models/engine.hpp"

namespace millrace {

/// Some pictures of an input, to measure models with.
struct ChosenPictures {
  std::string root;  ///< folder from which relative paths start
  std::vector<std::string> view_names;
  std::vector<std::vector<Item>> of_views;  ///< parallel to view_names; spare pictures are among them
  std::int64_t found = 0;                   ///< pictures of the input
};

/// Scans the input and chooses up to `count` pictures of each view. The choice depends on the pictures and `seed`.
/// When `stopped` becomes true, it chooses among the pictures that were found so far.
/// Throws InputError if the input has no pictures.
ChosenPictures choose_pictures(const SourceSpec& spec, std::size_t count, std::uint64_t seed,
                               const std::function<bool()>& stopped);

/// Boxes of a grid for a picture of this size, each with a seeded place and size in its cell.
std::vector<PromptBox> grid_of_boxes(int width, int height, std::uint64_t seed);

/// The inputs with which stages called models. It makes calls of any size from them.
class RecordedInputs {
 public:
  /// Keeps the inputs of a call, if the rows so far are few. It shares their storage.
  void add(const Package& package, std::string_view method, std::span<const Tensor> inputs);
  /// After this, add() keeps nothing more.
  void finish() { finished_ = true; }

  /// Whether it has inputs of this method.
  [[nodiscard]] bool has(const Package& package, std::string_view method) const;

  /// Inputs for a call of `rows` rows, on `device`. Recorded rows are repeated.
  /// If rows are not pictures, all of them belong to the picture that had the most rows.
  /// Throws std::out_of_range if it has no inputs of the method, and std::bad_alloc.
  [[nodiscard]] std::vector<Tensor> make(const Package& package, const Method& method, int rows, Device& device) const;

 private:
  using Key = std::pair<std::string, std::string>;       // Package::id(), method
  std::map<Key, std::vector<std::vector<Tensor>>> all_;  // the inputs of each call
  bool finished_ = false;
};

/// An engine that forwards to `engine` and adds the inputs of each call to `recorded`.
std::shared_ptr<Engine> recording(std::shared_ptr<Engine> engine, const Package& package,
                                  std::shared_ptr<RecordedInputs> recorded);

}  // namespace millrace
