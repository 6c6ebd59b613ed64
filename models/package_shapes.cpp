#include <fmt/format.h>
#include <fmt/ranges.h>

#include <stdexcept>

#include "models/package.hpp"

namespace millrace {
namespace {

std::int64_t anchors(const Package& package) {
  std::int64_t sum = 0;
  for (const int stride : package.strides)
    sum += std::int64_t{package.input.width / stride} * (package.input.height / stride);
  return sum;
}

[[noreturn]] void no_such_method(const Package& package, std::string_view method) {
  throw std::invalid_argument(fmt::format("{}: has no method '{}'; its methods are {}", package.name, method,
                                          fmt::join(methods_of(package), ", ")));
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

std::string output_text(const Package& package) {
  if (package.task == Task::segment)
    return fmt::format("embedding {} a picture, logits {} a box", fmt::join(package.embedding, " x "),
                       fmt::join(package.logits, " x "));
  return fmt::format("{}, {} anchors of strides {}, {} classes",
                     package.layout == OutputLayout::v8 ? "v8" : "yolox_raw", anchors(package),
                     fmt::join(package.strides, ", "), package.classes.size());
}

std::string wrapped_list(const std::vector<std::string>& names, const std::string& line_break) {
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

std::vector<std::string> methods_of(const Package& package) {
  if (package.task == Task::detect) return {"forward"};
  return {"encode", "decode"};
}

std::vector<TensorSpec> inputs_of(const Package& package, std::string_view method, std::int64_t batch,
                                  std::int64_t boxes, DType images) {
  const bool segment = package.task == Task::segment;
  if (method == (segment ? "encode" : "forward"))
    return {{"images", {batch, 3, package.input.height, package.input.width}, images}};
  if (!segment || method != "decode") no_such_method(package, method);
  const auto [channels, rows, columns] = package.embedding;
  return {{"embedding", {batch, channels, rows, columns}, images},
          {"boxes", {boxes, 4}},
          {"image_index", {boxes}, DType::i64}};
}

std::vector<TensorSpec> outputs_of(const Package& package, std::string_view method, std::int64_t batch,
                                   std::int64_t boxes, DType images) {
  const auto classes = static_cast<std::int64_t>(package.classes.size());
  if (package.task == Task::detect && method == "forward") {
    if (package.layout == OutputLayout::v8) return {{"detections", {batch, 4 + classes, anchors(package)}}};
    return {{"detections", {batch, anchors(package), 5 + classes}}};
  }
  if (package.task == Task::segment && method == "encode") {
    const auto [channels, rows, columns] = package.embedding;
    return {{"embedding", {batch, channels, rows, columns}, images}};
  }
  if (package.task != Task::segment || method != "decode") no_such_method(package, method);
  return {{"logits", {boxes, package.logits[0], package.logits[1]}}, {"iou", {boxes}}};
}

std::string describe(const Package& package) {
  const InputSpec& input = package.input;
  std::string text;
  const auto line = [&](std::string_view key, const std::string& value) {
    text += fmt::format("{:<14}{}\n", key, value);
  };
  line("name", package.name);
  line("task", package.task == Task::detect ? "detect" : "segment");
  line("architecture", package.architecture);
  line("folder", package.folder.string());
  line("input", fmt::format("{} x {} {}, (v * {} - [{}]) / [{}]", input.width, input.height, input.bgr ? "BGR" : "RGB",
                            input.scale, fmt::join(input.mean, ", "), fmt::join(input.std, ", ")));
  line("resize", resize_text(input));
  line("output", output_text(package));
  line("at most", package.task == Task::detect
                      ? fmt::format("{} pictures a call", package.max_batch)
                      : fmt::format("{} pictures and {} boxes a call", package.max_batch, package.max_boxes));
  if (!package.classes.empty()) line("classes", wrapped_list(package.classes, "\n" + std::string(14, ' ')));
  line("licence", package.licence);
  for (const auto& [what, value] : package.quality) line("quality", what + ": " + value);
  for (const PackageFile& file : package.files)
    line("file", fmt::format("{} ({} bytes), sha256 {}", file.name, file.bytes, file.sha256));
  line("fingerprint", package.fingerprint);
  return text;
}

}  // namespace millrace
