#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/letterbox.hpp"
#include "models/method.hpp"
#include "models/task.hpp"

namespace millrace {

struct Variant;
enum class Activation;

/// A package cannot be used, or its model does not do what it says. Exit code 5.
/// The message names file and key, or method and output; the expected value; and what to do.
struct PackageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct PackageFile {
  std::string name;    ///< in the package's folder
  std::string sha256;  ///< 64 lower-case hexadecimal digits
  std::int64_t bytes = 0;
};

/// The matrix that turns an embedder's vector into the logits of classes.
/// Float32, little-endian: one row per class, then the bias if there is one.
struct ClassMatrix {
  std::string file;                                     ///< in the package's folder
  bool bias = false;                                    ///< whether a bias follows the rows
  std::shared_ptr<const std::vector<float>> numbers{};  ///< all finite; the lanes share them
};

/// How the values of a channel become the input of a model of windows. docs/packages.md describes the keys.
struct Scaling {
  enum class Kind {
    constant,    ///< (v * scale - mean) / std
    zscore,      ///< mean and standard deviation of the item's own values
    percentiles  ///< percentiles of the item's own values become 0 and 1
  };
  enum class Of {
    all,         ///< all values
    nonzero,     ///< those that are not zero; zeros stay zero
    nonzero_box  ///< those in the smallest box that has all places where a channel is not zero, before `clip`
  };
  Kind kind = Kind::constant;
  std::optional<std::pair<float, float>> clip{};  ///< values are limited to this range first
  float scale = 1, mean = 0, std = 1;
  Of of = Of::all;                          ///< zscore: the values that count
  std::pair<double, double> percentiles{};  ///< 0 to 100
  bool clip_to_percentiles = false;
  bool operator==(const Scaling&) const = default;
};

/// Value of `output.resize` of a segmenter: logits are resized to the picture in one step, not via the input.
constexpr int masks_direct = 1;  // index of the word in OutputKey::words

/// A model package: a folder with model.yaml and the files that it lists. docs/packages.md describes the keys.
struct Package {
  std::filesystem::path folder;
  std::string name;
  const Task* task = nullptr;  ///< a row of task_table()
  std::string architecture;
  std::string original;  ///< software and model that it was made from, for people; may be empty
  InputSpec input;
  std::map<std::string, std::vector<int>, std::less<>> output;  ///< by key of Task::output; a word is its index
  std::vector<std::string> classes;                             ///< names by class index; may be empty
  bool heatmaps = false;                                        ///< of a semantic segmenter: results are their maxima
  std::vector<std::string> value_names;                         ///< of a regressor, in the order of its values
  std::optional<ClassMatrix> matrix;                            ///< for embedders that classify
  std::vector<Scaling> channels;  ///< of models of windows; others have scale, mean and std in `input`
  /// Each channel has its own statistics; false: all channels, which are scaled alike, have one.
  bool channel_wise = false;
  bool scaled_before_resampling = false;  ///< volumes are scaled before they are resampled, as in nnU-Net
  std::array<double, 3> spacing_mm{};     ///< of the voxels of volumes (x, y, z); 0: that of the file
  double mpp = 0;                         ///< of models of windows of RGB: micrometres a pixel; 0: those of the file
  std::string orientation;         ///< of models of volumes: where x, y and z go, such as RAS; empty: as in the file
  std::optional<float> threshold;  ///< above it, a pixel has a class; none: the largest wins
  int max_batch = 1;               ///< maximum of pictures in one call
  std::vector<Method> methods;     ///< those that the task calls
  std::string licence;
  std::vector<std::pair<std::string, std::string>> quality;  ///< measured figures, for people; may be empty
  std::vector<PackageFile> files;
  std::string fingerprint;                   ///< SHA-256 of model.yaml, which has the hashes of all other files
  std::shared_ptr<const Variant> variant{};  ///< compiled code that this run uses; null: TorchScript alone

  /// Differs for two packages of the same name, and for two sizes of windows: calls then need other memory and time.
  std::string id() const;
  /// The TorchScript file, which every package has.
  std::filesystem::path torchscript() const { return folder / "model.ts"; }
  /// Bytes of all files together.
  std::int64_t file_bytes() const;

  /// Numbers of a key of the section `output`. Both throw std::out_of_range for a key that the task does not have.
  const std::vector<int>& numbers(std::string_view key) const;
  int number(std::string_view key) const { return numbers(key).front(); }
  /// Value of `output.activation`. Throws std::out_of_range for a task without this key.
  Activation activation() const;

  /// The method of this name. Throws std::invalid_argument if there is none.
  const Method& method(std::string_view method_name) const;
};

/// The files whose kind and hash read_package() checks. Runs do not open model.ep.pt2, from which variants are compiled.
enum class CheckFiles { of_runs, all };

/// Reads and checks `folder`/model.yaml and the files that it lists. Throws PackageError.
Package read_package(const std::filesystem::path& folder, CheckFiles checked = CheckFiles::of_runs);

/// Sets `package.methods` from the task and the other members. read_package() does this itself.
void set_methods(Package& package);

/// Inputs and outputs of a method for a call of this size. Pictures and embeddings have the type `images`.
/// Both throw std::invalid_argument if the package has no such method.
std::vector<TensorSpec> inputs_of(const Package& package, std::string_view method, const CallRows& call,
                                  DType images = DType::f32);
std::vector<TensorSpec> outputs_of(const Package& package, std::string_view method, const CallRows& call,
                                   DType images = DType::f32);

/// The input of models that take pictures: images [B, 3, H, W].
TensorForm picture_inputs();
/// The key `output.activation` of models that return a number for each class.
OutputKey activation_key();
/// "softmax", "sigmoid" or "no activation", for people.
std::string_view activation_text(const Package& package);

/// A description of the package in a few lines, as `millrace inspect` prints it.
std::string describe(const Package& package);

}  // namespace millrace
