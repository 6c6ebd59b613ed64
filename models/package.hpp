#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/tensor.hpp"
#include "gpu/letterbox.hpp"

namespace millrace {

/// A package that cannot be used: the message names file and key, what was expected and what to do. Exit code 5.
struct PackageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class Task { detect, segment };

/// How a detector's output is laid out; A is the number of anchors, the sum of the grids of its strides.
enum class OutputLayout {
  yolox_raw,  ///< [B, A, 5 + classes]: x, y, log w, log h on the grid, objectness, class probabilities: YOLOX
  v8,         ///< [B, 4 + classes, A]: centre x, y, w, h in input pixels, class probabilities: YOLOv8, YOLO11
};

struct PackageFile {
  std::string name;    ///< in the package's folder
  std::string sha256;  ///< 64 lower-case hexadecimal digits
  std::int64_t bytes = 0;
};

/// A model package: a folder with model.yaml and the files that it lists. docs/packages.md describes the keys.
struct Package {
  std::filesystem::path folder;
  std::string name;
  Task task = Task::detect;
  std::string architecture;
  InputSpec input;
  OutputLayout layout = OutputLayout::yolox_raw;  ///< detect
  std::vector<int> strides;                       ///< detect: input pixels per grid cell, finest first
  std::vector<std::string> classes;               ///< detect: names by class index
  std::array<std::int64_t, 3> embedding{};        ///< segment: channels, rows, columns of one picture's embedding
  std::array<std::int64_t, 2> logits{};           ///< segment: rows, columns of one box's logits
  int max_batch = 1;                              ///< pictures in one call
  int max_boxes = 0;                              ///< segment: boxes in one call
  std::string licence;
  std::vector<std::pair<std::string, std::string>> quality;  ///< what was measured of it, for people; may be empty
  std::vector<PackageFile> files;
  std::string fingerprint;  ///< SHA-256 of model.yaml, and so of everything in the package

  /// The TorchScript file, which every package has.
  std::filesystem::path torchscript() const { return folder / "model.ts"; }
  /// Bytes of all files together.
  std::int64_t file_bytes() const;
};

/// A tensor as a package promises it; `name` is for messages.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
  DType dtype = DType::f32;
};

/// Reads and checks `folder`/model.yaml, and the size, kind and hash of every file that it lists. Throws PackageError.
Package read_package(const std::filesystem::path& folder);

/// Names of the methods that an engine of this package has: {"forward"}, or {"encode", "decode"}.
std::vector<std::string> methods_of(const Package& package);

/// Inputs of a method for `batch` pictures and, for "decode", `boxes` boxes; pictures and embeddings are of type
/// `images`. Throws std::invalid_argument on another method.
std::vector<TensorSpec> inputs_of(const Package& package, std::string_view method, std::int64_t batch,
                                  std::int64_t boxes, DType images = DType::f32);

/// Outputs of a method, as inputs_of.
std::vector<TensorSpec> outputs_of(const Package& package, std::string_view method, std::int64_t batch,
                                   std::int64_t boxes, DType images = DType::f32);

/// The package for people, a few lines: what `millrace inspect` prints.
std::string describe(const Package& package);

}  // namespace millrace
