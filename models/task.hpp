#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "models/method.hpp"
#include "models/precision.hpp"

namespace millrace {

class Device;
class YamlSection;
struct Package;

/// A key of the section `output` of a model.yaml: whole numbers, or one of some words.
struct OutputKey {
  std::string name;
  std::size_t count = 1;  ///< numbers; 1 stands without brackets
  int lowest = 1, highest = 8192;
  std::vector<std::string> words{};  ///< where there are some, Package::output has the word's index
};

/// A row of the table in tasks.cpp: a kind of model. Nothing outside the row tests for it.
struct Task {
  std::string_view name;   ///< in model.yaml
  std::string_view model;  ///< what people call such a model: "detector"
  std::vector<std::string> method_names;
  std::vector<OutputKey> output;
  Precision native_precision, older_precision;  ///< on a GPU with bf16 and on one without, unless one is asked for

  /// Reads keys of model.yaml that only this task has, and checks what it needs; the keys of `output` are read by then.
  /// Throws PackageError.
  void (*read)(YamlSection& root, YamlSection& output, Package& package);
  /// What a package of this task can be called with. Where model.yaml declares them, they must be as here.
  std::vector<Method> (*methods)(const Package& package);
  /// A line for people: "8400 anchors of strides 8, 16, 32, 80 classes".
  std::string (*describe)(const Package& package);
  /// Reads the package's other files, whose hashes are right. Throws PackageError. Null: there are none.
  void (*read_files)(Package& package) = nullptr;
  /// Inputs of a call that warms up. Null: zeros do.
  std::vector<Tensor> (*warm_up_inputs)(const Package& package, const Method& method, const CallRows& call,
                                        DType images, Device& device) = nullptr;
};

/// All rows.
const std::vector<Task>& task_table();
/// The row of this name. Throws std::out_of_range where there is none.
const Task& find_task(std::string_view name);

/// The row of T, defined in tasks/ as an explicit specialisation.
template <class T>
Task make_task();

}  // namespace millrace
