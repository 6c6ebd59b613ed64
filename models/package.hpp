#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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

/// A package that cannot be used: the message names file and key, what was expected and what to do. Exit code 5.
struct PackageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct PackageFile {
  std::string name;    ///< in the package's folder
  std::string sha256;  ///< 64 lower-case hexadecimal digits
  std::int64_t bytes = 0;
};

/// Rows that vectors are multiplied with: float32, little-endian, a row a class, then the bias if there is one.
struct ClassMatrix {
  std::string file;  ///< in the package's folder
  bool bias = false;
  std::shared_ptr<const std::vector<float>> numbers{};  ///< finite; shared by the lanes
};

/// A model package: a folder with model.yaml and the files that it lists. docs/packages.md describes the keys.
struct Package {
  std::filesystem::path folder;
  std::string name;
  const Task* task = nullptr;  ///< a row of task_table()
  std::string architecture;
  InputSpec input;
  std::map<std::string, std::vector<int>, std::less<>> output;  ///< by key: what the task's row reads
  std::vector<std::string> classes;                             ///< names by class index; may be none
  std::optional<ClassMatrix> matrix;                            ///< of the classes
  int max_batch = 1;                                            ///< pictures in one call
  std::vector<Method> methods;                                  ///< as the task calls them
  std::string licence;
  std::vector<std::pair<std::string, std::string>> quality;  ///< what was measured of it, for people; may be empty
  std::vector<PackageFile> files;
  std::string fingerprint;  ///< SHA-256 of model.yaml, and so of everything in the package

  /// Tells packages of one name apart too.
  std::string id() const { return name + " " + fingerprint; }
  /// The TorchScript file, which every package has.
  std::filesystem::path torchscript() const { return folder / "model.ts"; }
  /// Bytes of all files together.
  std::int64_t file_bytes() const;

  /// Numbers of the section `output`. Throw std::out_of_range for a key that the task does not have.
  const std::vector<int>& numbers(std::string_view key) const;
  int number(std::string_view key) const { return numbers(key).front(); }

  /// Throws std::invalid_argument for another name.
  const Method& method(std::string_view method_name) const;
};

/// Reads and checks `folder`/model.yaml, and the size, kind and hash of every file that it lists. Throws PackageError.
Package read_package(const std::filesystem::path& folder);

/// Sets the methods of a package whose other members are set: what read_package() does last.
void set_methods(Package& package);

/// Inputs and outputs of a method for a call of so many rows; pictures and what has their type are of type `images`.
/// Throw std::invalid_argument on another method.
std::vector<TensorSpec> inputs_of(const Package& package, std::string_view method, const CallRows& call,
                                  DType images = DType::f32);
std::vector<TensorSpec> outputs_of(const Package& package, std::string_view method, const CallRows& call,
                                   DType images = DType::f32);

/// The input that a model makes of whole pictures: images [B, 3, H, W].
TensorForm picture_inputs();

/// The package for people, a few lines: what `millrace inspect` prints.
std::string describe(const Package& package);

}  // namespace millrace
