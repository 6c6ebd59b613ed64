#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <ranges>
#include <span>
#include <stdexcept>

#include "gpu/ops/finish_rows.hpp"
#include "models/package.hpp"

namespace millrace {
namespace {

[[noreturn]] void no_such_method(const Package& package, std::string_view method) {
  throw std::invalid_argument(fmt::format("{}: has no method '{}'; its methods are {}", package.name, method,
                                          fmt::join(package.methods | std::views::transform(&Method::name), ", ")));
}

std::string resize_text(const InputSpec& input) {
  const std::string filter = input.filter == ResizeFilter::cv2_linear ? "cv2_linear" : "pil_bilinear_antialias";
  const std::string pad = fmt::format("padded with {}", fmt::join(input.pad, ", "));
  switch (input.mode) {
    case ResizeMode::letterbox:
      return fmt::format("letterbox ({}, sides rounded {}, {}), {}", filter,
                         input.rounding == SideRounding::down ? "down" : "half to even",
                         input.placement == Placement::top_left ? "top left" : "centred", pad);
    case ResizeMode::longest_side:
      return fmt::format("longest side ({}, top left), {}", filter, pad);
    case ResizeMode::stretch:
      return fmt::format("stretched ({})", filter);
    case ResizeMode::centre_crop:
      return fmt::format("shorter side to {} ({}), its centre, {}", input.shorter_side, filter, pad);
  }
  return filter;
}

/// The scaling of channels that differ in mean and deviation at most.
std::string scaling_text(std::span<const Scaling> channels, bool channel_wise) {
  const Scaling& scaling = channels.front();
  const std::string each = channel_wise ? " of each channel" : "";
  if (scaling.kind == Scaling::Kind::percentiles)
    return fmt::format("percentiles {} and {}{} to 0 and 1{}", scaling.percentiles.first, scaling.percentiles.second,
                       each, scaling.clip_to_percentiles ? ", clipped" : "");
  const std::string clip =
      scaling.clip ? fmt::format("clipped to {} .. {}, ", scaling.clip->first, scaling.clip->second) : "";
  if (scaling.kind == Scaling::Kind::zscore)
    return fmt::format(
        "{}z-score of {}{}", clip,
        std::array{"all values", "the values that are not zero",
                   "the values in the box of those that are not zero"}[static_cast<std::size_t>(scaling.of)],
        each);
  std::vector<float> means, deviations;
  for (const Scaling& channel : channels) means.push_back(channel.mean), deviations.push_back(channel.std);
  return fmt::format("{}(v * {} - [{}]) / [{}]", clip, scaling.scale, fmt::join(means, ", "),
                     fmt::join(deviations, ", "));
}

std::string scaling_text(const Package& package) {
  const auto alike = [&](Scaling one) {
    one.mean = package.channels.front().mean;
    one.std = package.channels.front().std;
    return one == package.channels.front();
  };
  if (std::ranges::all_of(package.channels, alike)) return scaling_text(package.channels, package.channel_wise);
  std::string text;
  for (std::size_t i = 0; i < package.channels.size(); ++i)
    text += fmt::format("{}channel {}: {}", i == 0 ? "" : "; ", i,
                        scaling_text(std::span(package.channels).subspan(i, 1), false));
  return text;
}

std::string volume_text(const Package& package) {
  const InputSpec& input = package.input;
  std::string text = fmt::format("{} x {} x {} volumes as {}", input.width, input.height, input.depth,
                                 input.columns_first ? "[x, y, z]" : "[z, y, x]");
  std::vector<std::string> sides;
  for (const double side : package.spacing_mm) sides.push_back(side > 0 ? fmt::format("{}", side) : "any");
  if (std::ranges::any_of(package.spacing_mm, [](double side) { return side > 0; }))
    text += fmt::format(" with voxels of {} mm", fmt::join(sides, " x "));
  if (package.channels.size() > 1) text += fmt::format(" and {} channels", package.channels.size());
  if (!package.orientation.empty()) text += " in " + package.orientation;
  return text;
}

std::string window_text(const Package& package) {
  const InputSpec& input = package.input;
  const std::string size =
      input.depth > 0 ? volume_text(package)
      : input.keeps_values
          ? fmt::format(
                "{} x {} with {} of the file", input.width, input.height,
                package.channels.size() == 1 ? "the channel" : fmt::format("the {} channels", package.channels.size()))
          : fmt::format("{} x {} {}{}", input.width, input.height, input.bgr ? "BGR" : "RGB",
                        package.mpp > 0 ? fmt::format(" with {} micrometres a pixel", package.mpp) : "");
  return fmt::format("windows of {}, {}", size, scaling_text(package));
}

// "16 pictures and 64 boxes a call"
std::string maximum_text(const Package& package) {
  std::string text;
  for (const Method& method : package.methods)
    text += fmt::format("{}{} {}", text.empty() ? "" : " and ", method.maximum, words_of(method.row));
  return text + " a call";
}

constexpr std::ptrdiff_t told_names = 100;  // a thousand names would fill the terminal

std::string wrapped_list(const std::vector<std::string>& names, const std::string& line_break) {
  // The column of the keys takes 14 more.
  constexpr std::size_t columns = 84;
  std::string text = names.front();
  std::size_t line_start = 0;
  for (std::size_t i = 1; i < names.size(); ++i) {
    text += ',';
    const bool fits = text.size() - line_start + 1 + names[i].size() < columns;
    if (!fits) line_start = text.size() + line_break.size();
    text += (fits ? " " : line_break) + names[i];
  }
  return text;
}

}  // namespace

std::string Package::id() const {
  std::string id = name + " " + fingerprint;
  if (task != nullptr && task->of_windows) id += fmt::format(" {}x{}x{}", input.width, input.height, input.depth);
  return id;
}

const Method& Package::method(std::string_view method_name) const {
  for (const Method& one : methods) {
    if (one.name == method_name) return one;
  }
  no_such_method(*this, method_name);
}

void set_methods(Package& package) { package.methods = package.task->methods(package); }

std::vector<TensorSpec> inputs_of(const Package& package, std::string_view method, const CallRows& call, DType images) {
  return specs_of(package.method(method).inputs, package.input, call, images);
}

std::vector<TensorSpec> outputs_of(const Package& package, std::string_view method, const CallRows& call,
                                   DType images) {
  return specs_of(package.method(method).outputs, package.input, call, images);
}

TensorForm picture_inputs() { return {"images", {'B', 3, 'H', 'W'}, std::nullopt}; }

// All three have the words in this order.
OutputKey activation_key() { return {.name = "activation", .words = {"softmax", "sigmoid", "none"}}; }

Activation Package::activation() const {
  return std::array{Activation::softmax, Activation::sigmoid,
                    Activation::none}[static_cast<std::size_t>(number("activation"))];
}

std::string_view activation_text(const Package& package) {
  return std::array{"softmax", "sigmoid", "no activation"}[static_cast<std::size_t>(package.number("activation"))];
}

std::string describe(const Package& package) {
  const InputSpec& input = package.input;
  std::string text;
  const auto line = [&](std::string_view key, const std::string& value) {
    text += fmt::format("{:<14}{}\n", key, value);
  };
  line("name", package.name);
  line("task", std::string(package.task->name));
  line("architecture", package.architecture);
  if (!package.original.empty()) line("original", package.original);
  line("folder", package.folder.string());
  line("input", package.task->of_windows ? window_text(package)
                                         : fmt::format("{} x {} {}, (v * {} - [{}]) / [{}]", input.width, input.height,
                                                       input.bgr ? "BGR" : "RGB", input.scale,
                                                       fmt::join(input.mean, ", "), fmt::join(input.std, ", ")));
  line("resize", package.task->of_windows ? "none" : resize_text(input));
  line("output", package.task->describe(package));
  line("at most", maximum_text(package));
  const auto list = [&](std::string_view key, const std::vector<std::string>& all) {
    if (all.empty()) return;
    std::vector<std::string> names(all.begin(), all.begin() + std::min(std::ssize(all), told_names));
    if (names.size() < all.size()) names.push_back(fmt::format("and {} more in model.yaml", all.size() - names.size()));
    line(key, wrapped_list(names, "\n" + std::string(14, ' ')));
  };
  list("classes", package.classes);
  list("values", package.value_names);
  line("licence", package.licence);
  for (const auto& [what, value] : package.quality) line("quality", what + ": " + value);
  for (const PackageFile& file : package.files)
    line("file", fmt::format("{} ({} bytes), sha256 {}", file.name, file.bytes, file.sha256));
  line("fingerprint", package.fingerprint);
  return text;
}

}  // namespace millrace
