#include "models/task.hpp"

#include <stdexcept>

namespace millrace {

namespace {

using Row = Task (*)();

}  // namespace

// The table of tasks, one row per line.
// `struct` declares the task in its row, so this file needs no header of it.
// The table must be outside of functions and unnamed namespaces: there, `struct` would declare another type.
// clang-format off
constexpr Row rows[] = {
    make_task<struct DetectTask>,
    make_task<struct SegmentTask>,
    make_task<struct EmbedTask>,
    make_task<struct ClassifyTask>,
    make_task<struct RegressTask>,
    make_task<struct SemanticTask>,
};
// clang-format on

const std::vector<Task>& task_table() {
  static const std::vector<Task> tasks = [] {
    std::vector<Task> made;
    for (const Row row : rows) made.push_back(row());
    return made;
  }();
  return tasks;
}

const Task& find_task(std::string_view name) {
  for (const Task& task : task_table()) {
    if (task.name == name) return task;
  }
  throw std::out_of_range("there is no task '" + std::string(name) + "'");
}

}  // namespace millrace
