#include "run/profile_inputs.hpp"

#include <chrono>
#include <random>
#include <utility>

#include "models/engines/wrapped_engine.hpp"

namespace millrace {
namespace {

constexpr int cells = 4;          // of a side of the grid
constexpr int most_rows = 16;     // that are kept of a method
constexpr double smallest = 0.5;  // share of a cell's side that a box has at least

class RecordingEngine final : public WrappedEngine {
 public:
  RecordingEngine(std::shared_ptr<Engine> engine, Package package, std::shared_ptr<RecordedInputs> recorded)
      : WrappedEngine(std::move(engine)), package_(std::move(package)), recorded_(std::move(recorded)) {}

  using Engine::call;
  std::vector<Tensor> call(std::string_view method, std::span<const Tensor> inputs, Device& device) override {
    // Before the call, so that inputs are known even if memory runs out.
    recorded_->add(package_, method, inputs);
    return engine_->call(method, inputs, device);
  }

 private:
  const Package package_;
  const std::shared_ptr<RecordedInputs> recorded_;
};

// In [0, 1). The distributions of the standard library differ between implementations.
double share(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

int rows_of(const Method& method, std::span<const Tensor> inputs) {
  return static_cast<int>(method.rows(method.call_of(inputs)));
}

}  // namespace

ChosenPictures choose_pictures(const SourceSpec& spec, std::size_t count, std::uint64_t seed,
                               const std::function<bool()>& stopped) {
  StdinOptions stdin_options;
  stdin_options.idle.after = std::chrono::hours(24 * 365);  // a pause of stdin is not its end
  Source source(spec, stdin_options);
  ChosenPictures chosen;
  chosen.root = source.root();
  chosen.view_names = source.views().names();
  chosen.of_views.resize(chosen.view_names.size());
  std::vector<std::uint64_t> seen(chosen.view_names.size());
  std::mt19937_64 random(seed);
  Item item;
  SourcePosition position;
  while ((spec.selection.limit == 0 || chosen.found < spec.selection.limit) && !stopped() &&
         source.next(item, position) == Step::item) {
    const auto view = static_cast<std::size_t>(item.view);
    ++chosen.found;
    ++seen[view];
    auto& of_view = chosen.of_views[view];
    // Each picture of the view gets the same chance (reservoir sampling), without a list of all of them.
    if (of_view.size() < count) {
      of_view.push_back(item);
    } else if (const auto at = random() % seen[view]; at < count) {
      of_view[at] = item;
    }
  }
  if (chosen.found == 0 && !stopped()) throw InputError(source.nothing_found());
  for (auto& of_view : chosen.of_views) {
    // The first ones that can be decoded are used, and those of the reservoir are nearly in the order of the input.
    for (std::size_t left = of_view.size(); left > 1; --left) std::swap(of_view[left - 1], of_view[random() % left]);
    for (Item& one : of_view) source.measure(one);
  }
  return chosen;
}

std::vector<PromptBox> grid_of_boxes(int width, int height, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<PromptBox> boxes;
  const double cell_width = static_cast<double>(width) / cells, cell_height = static_cast<double>(height) / cells;
  for (int row = 0; row < cells; ++row) {
    for (int column = 0; column < cells; ++column) {
      const double wide = cell_width * (smallest + (1 - smallest) * share(random));
      const double high = cell_height * (smallest + (1 - smallest) * share(random));
      const double x = cell_width * column + (cell_width - wide) * share(random);
      const double y = cell_height * row + (cell_height - high) * share(random);
      boxes.push_back(
          {static_cast<float>(x), static_cast<float>(y), static_cast<float>(wide), static_cast<float>(high)});
    }
  }
  return boxes;
}

void RecordedInputs::add(const Package& package, std::string_view method, std::span<const Tensor> inputs) {
  if (finished_) return;
  const Method& called = package.method(method);
  auto& calls = all_[{package.id(), called.name}];
  const std::vector<Tensor> these(inputs.begin(), inputs.end());
  if (called.rows_are_pictures()) {
    int rows = 0;
    for (const auto& call : calls) rows += rows_of(called, call);
    if (rows < most_rows) calls.push_back(these);
  } else if (calls.empty() || rows_of(called, these) > rows_of(called, calls.front())) {
    calls = {these};
  }
}

bool RecordedInputs::has(const Package& package, std::string_view method) const {
  const auto found = all_.find({package.id(), std::string(method)});
  return found != all_.end() && !found->second.empty();
}

std::vector<Tensor> RecordedInputs::make(const Package& package, const Method& method, int rows, Device& device) const {
  const auto& calls = all_.at({package.id(), method.name});
  const char row_symbol = method.rows_are_pictures() ? 'B' : 'N';
  std::vector<Tensor> inputs;
  for (std::size_t input = 0; input < method.inputs.size(); ++input) {
    const Tensor& first = calls.front().at(input);
    if (method.inputs[input].shape.front().symbol != row_symbol) {
      inputs.push_back(first);  // what the rows share, such as the embedding of their picture
      continue;
    }
    std::vector<Tensor> known;
    for (const auto& call : calls) {
      for (std::int64_t row = 0; row < call.at(input).shape.front(); ++row) known.push_back(call.at(input).row(row));
    }
    std::vector<std::int64_t> shape = first.shape;
    shape.front() = rows;
    Tensor all = device.empty(shape, first.dtype);
    for (int row = 0; row < rows; ++row) device.copy(known[static_cast<std::size_t>(row) % known.size()], all.row(row));
    inputs.push_back(std::move(all));
  }
  return inputs;
}

std::shared_ptr<Engine> recording(std::shared_ptr<Engine> engine, const Package& package,
                                  std::shared_ptr<RecordedInputs> recorded) {
  return std::make_shared<RecordingEngine>(std::move(engine), package, std::move(recorded));
}

}  // namespace millrace
