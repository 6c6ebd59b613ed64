#include "stages/components.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "io/files/decode_error.hpp"

namespace millrace {
namespace {

constexpr std::size_t most_components = 1'000'000;  // the line of a picture has all of them
constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

void include(Component& component, const Component& other) {
  component.values += other.values;
  component.first = {std::min(component.first.rows, other.first.rows),
                     std::min(component.first.lines, other.first.lines),
                     std::min(component.first.columns, other.first.columns)};
  component.last = {std::max(component.last.rows, other.last.rows), std::max(component.last.lines, other.last.lines),
                    std::max(component.last.columns, other.last.columns)};
}

}  // namespace

ComponentFinder::ComponentFinder(const Extent& size, int labels, std::vector<bool> background, std::int64_t least)
    : size_(size), least_(least), ignored_(std::move(background)) {
  ignored_.resize(static_cast<std::size_t>(labels), false);
  ignored_.resize(256, true);
  before_.resize(static_cast<std::size_t>(size.lines));
  here_.resize(before_.size());
}

void ComponentFinder::add(std::span<const std::uint8_t> rows) {
  const auto row_values = static_cast<std::size_t>(size_.row_values());
  for (std::size_t at = 0; at < rows.size(); at += row_values) add_row(rows.data() + at);
}

void ComponentFinder::add_row(const std::uint8_t* labels) {
  for (int line = 0; line < size_.lines; ++line, labels += size_.columns) {
    here_[static_cast<std::size_t>(line)].clear();
    for (int column = 0; column < size_.columns;) {
      const int first = column;
      const std::uint8_t label = labels[first];
      while (column < size_.columns && labels[column] == label) ++column;
      if (!ignored_[label]) add_run({first, column - 1, label, none}, line);
    }
  }
  close();
  std::swap(before_, here_);
  ++row_;
}

void ComponentFinder::add_run(Run run, int line) {
  const auto at = static_cast<std::size_t>(line);
  if (line > 0) {
    join(run, here_[at - 1]);
    join(run, before_[at - 1]);
  }
  join(run, before_[at]);
  if (line + 1 < size_.lines) join(run, before_[at + 1]);
  const Component found{run.label, run.last - run.first + 1, {row_, line, run.first}, {row_, line, run.last}};
  if (run.component == none) {
    run.component = static_cast<std::uint32_t>(open_.size());
    open_.push_back(
        {found, (std::int64_t{row_} * size_.lines + line) * size_.columns + run.first, run.component, none});
  } else {
    include(open_[run.component].found, found);
  }
  here_[at].push_back(run);
}

// Joins the components of all runs of a line that touch this run.
void ComponentFinder::join(Run& run, const std::vector<Run>& line) {
  auto other = std::ranges::lower_bound(line, run.first - 1, {}, &Run::last);
  for (; other != line.end() && other->first <= run.last + 1; ++other) {
    if (other->label != run.label) continue;
    const std::uint32_t found = root_of(other->component);
    if (run.component == none) run.component = found;
    if (found == run.component) continue;
    Open &stays = open_[run.component], &goes = open_[found];
    include(stays.found, goes.found);
    stays.begin = std::min(stays.begin, goes.begin);
    goes.parent = run.component;
  }
}

std::uint32_t ComponentFinder::root_of(std::uint32_t component) {
  while (open_[component].parent != component) {
    open_[component].parent = open_[open_[component].parent].parent;
    component = open_[component].parent;
  }
  return component;
}

// Components without a run in this row are complete. The others get new numbers, so joined ones need no memory.
void ComponentFinder::close() {
  std::vector<Open> still_open;
  for (std::vector<Run>& line : here_) {
    for (Run& run : line) {
      Open& root = open_[root_of(run.component)];
      if (root.moved == none) {
        root.moved = static_cast<std::uint32_t>(still_open.size());
        still_open.push_back({root.found, root.begin, root.moved, none});
      }
      run.component = root.moved;
    }
  }
  for (std::uint32_t i = 0; i < open_.size(); ++i) {
    if (open_[i].parent == i && open_[i].moved == none && open_[i].found.values >= least_) closed_.push_back(open_[i]);
  }
  open_ = std::move(still_open);
  if (closed_.size() > most_components)
    throw PictureError(Reason::too_large, "it has more than " + std::to_string(most_components) +
                                              " connected parts with at least " + std::to_string(least_) +
                                              " pixels or voxels; raise semantic.instances");
}

std::vector<Component> ComponentFinder::finish() {
  for (std::vector<Run>& line : here_) line.clear();
  close();
  std::ranges::sort(closed_, {}, &Open::begin);
  std::vector<Component> found;
  found.reserve(closed_.size());
  for (const Open& one : closed_) found.push_back(one.found);
  return found;
}

}  // namespace millrace
