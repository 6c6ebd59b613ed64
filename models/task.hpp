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

/// A key of the section `output` of a model.yaml. Its value is a list of whole numbers, or one word.
struct OutputKey {
  std::string name;
  std::size_t count = 1;  ///< of numbers; one number has no brackets
  int lowest = 1, highest = 8192;
  std::vector<std::string> words{};  ///< allowed words; if not empty, Package::output has the word's index
};

/// A kind of model: one row of the table in tasks.cpp. Only the row has code for the task.
struct Task {
  std::string_view name;   ///< in model.yaml: "detect"
  std::string_view model;  ///< for people: "detector"
  std::vector<std::string> method_names;
  std::vector<OutputKey> output;
  Precision native_precision, older_precision;  ///< defaults on a GPU with bf16, and on one without
  bool of_windows = false;                      ///< its input is a window, which is not resized

  /// Reads the other keys of this task from model.yaml. The keys of `output` were read before. Throws PackageError.
  void (*read)(YamlSection& root, YamlSection& output, Package& package);
  /// The methods that Millrace calls. If model.yaml declares methods, these must be among them, and equal.
  std::vector<Method> (*methods)(const Package& package);
  /// A line for people: "8400 anchors of strides 8, 16, 32, 80 classes".
  std::string (*describe)(const Package& package);
  /// Reads further files of the package, after their hashes were checked. Throws PackageError.
  /// Null: the task has no further files.
  void (*read_files)(Package& package) = nullptr;
  /// Inputs of a warm-up call. Null: zeros.
  std::vector<Tensor> (*warm_up_inputs)(const Package& package, const Method& method, const CallRows& call,
                                        DType images, Device& device) = nullptr;
};

/// All tasks, in the order of tasks.cpp.
const std::vector<Task>& task_table();
/// The task of this name. Throws std::out_of_range if there is none.
const Task& find_task(std::string_view name);

/// The row of task T. Each source in tasks/ defines one explicit specialisation.
template <class T>
Task make_task();

}  // namespace millrace
