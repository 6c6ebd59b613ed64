// Runs the numeric core for parity_test.py. A line of standard input is "command input-file output-file arguments...".
// Files hold raw arrays. The answer on standard output is "ok" or "error: ...".
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/runs.hpp"
#include "gpu/letterbox.hpp"
#include "gpu/nms.hpp"
#include "gpu/outline.hpp"
#include "gpu/yolo_head.hpp"
#include "io/results/rle.hpp"

using namespace millrace;

namespace {

template <class T>
std::vector<T> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

template <class T>
void write(const std::string& path, const std::vector<T>& values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(T)));
}

InputSpec preset(const std::string& name) {
  InputSpec spec;
  if (name == "yolox") {
    spec.bgr = true;
  } else if (name == "ultralytics") {
    spec.rounding = SideRounding::half_even;
    spec.placement = Placement::centred;
    spec.std = {255, 255, 255};
  } else if (name == "sam") {
    spec.mode = ResizeMode::longest_side;
    spec.filter = ResizeFilter::pil_bilinear_antialias;
    spec.mean = spec.pad = {123.675F, 116.28F, 103.53F};
    spec.std = {58.395F, 57.12F, 57.375F};
  } else if (name == "sam2") {
    spec.mode = ResizeMode::stretch;
    spec.filter = ResizeFilter::pil_bilinear_antialias;
    spec.scale = 1.0F / 255;
    spec.mean = {0.485F, 0.456F, 0.406F};
    spec.std = {0.229F, 0.224F, 0.225F};
  } else if (name == "rtdetr") {
    spec.mode = ResizeMode::stretch;
    spec.std = {255, 255, 255};
  } else if (name.starts_with("centre")) {  // "centre232"
    spec.mode = ResizeMode::centre_crop;
    spec.shorter_side = std::stoi(name.substr(6));
    spec.filter = ResizeFilter::pil_bilinear_antialias;
    spec.pad = {0, 0, 0};
  } else if (name == "cv2" || name == "pil") {
    spec.mode = ResizeMode::stretch;
    if (name == "pil") spec.filter = ResizeFilter::pil_bilinear_antialias;
  } else {
    throw std::invalid_argument("no preset " + name);
  }
  return spec;
}

/// preset, input width and height, picture width and height: u8 pixels to float planes.
void letterbox(const std::string& in, const std::string& out, std::istream& arguments) {
  std::string name;
  int width = 0, height = 0, picture_width = 0, picture_height = 0;
  arguments >> name >> width >> height >> picture_width >> picture_height;
  InputSpec spec = preset(name);
  spec.width = width;
  spec.height = height;
  const auto pixels = read<std::uint8_t>(in);
  std::vector<float> planes(3 * static_cast<std::size_t>(width) * static_cast<std::size_t>(height));
  letterbox_cpu({pixels.data(), picture_width, picture_height}, letterbox_geometry(picture_width, picture_height, spec),
                spec, planes.data());
  write(out, planes);
}

/// preset, input size, picture size: float boxes in input pixels to boxes in picture pixels.
void to_picture(const std::string& in, const std::string& out, std::istream& arguments) {
  std::string name;
  int width = 0, height = 0, picture_width = 0, picture_height = 0;
  arguments >> name >> width >> height >> picture_width >> picture_height;
  InputSpec spec = preset(name);
  spec.width = width;
  spec.height = height;
  const LetterboxGeometry geometry = letterbox_geometry(picture_width, picture_height, spec);
  std::vector<Box> boxes = read<Box>(in);
  for (Box& box : boxes) box = geometry.to_picture(box);
  write(out, boxes);
}

/// count, threshold, maximum to keep, class aware: boxes, scores and classes in one file to indices.
void nms(const std::string& in, const std::string& out, std::istream& arguments) {
  std::size_t count = 0;
  double threshold = 0;
  int max_kept = 0;
  bool class_aware = false;
  arguments >> count >> threshold >> max_kept >> class_aware;
  const auto values = read<float>(in);  // classes are stored as floats too
  std::vector<Box> boxes(count);
  if (count > 0) std::memcpy(static_cast<void*>(boxes.data()), values.data(), count * sizeof(Box));
  const std::vector<float> scores(values.begin() + static_cast<std::ptrdiff_t>(4 * count),
                                  values.begin() + static_cast<std::ptrdiff_t>(5 * count));
  std::vector<int> classes;
  for (std::size_t i = 5 * count; i < 6 * count; ++i) classes.push_back(static_cast<int>(values[i]));
  write(out, nms_cpu(boxes, scores, classes, threshold, max_kept, class_aware));
}

/// The eight sides of MaskGeometry, threshold: logits to area, bounds and runs, all 32-bit.
void mask(const std::string& in, const std::string& out, std::istream& arguments) {
  MaskGeometry g;
  float threshold = 0;
  arguments >> g.logits_width >> g.logits_height >> g.input_width >> g.input_height >> g.crop_width >> g.crop_height >>
      g.picture_width >> g.picture_height >> threshold;
  const auto counts = MaskOutliner(g).outline(read<float>(in), threshold);
  const PixelBox bounds = run_bounds(counts, g.picture_height);
  std::vector<std::uint32_t> all{static_cast<std::uint32_t>(run_area(counts)), static_cast<std::uint32_t>(bounds.x),
                                 static_cast<std::uint32_t>(bounds.y), static_cast<std::uint32_t>(bounds.width),
                                 static_cast<std::uint32_t>(bounds.height)};
  all.insert(all.end(), counts.begin(), counts.end());
  write(out, all);
}

/// width, height: raster to COCO string.
void encode(const std::string& in, const std::string& out, std::istream& arguments) {
  int width = 0, height = 0;
  arguments >> width >> height;
  const std::string text = rle_to_string(rle_encode(read<std::uint8_t>(in), width, height));
  write(out, std::vector<char>(text.begin(), text.end()));
}

/// width, height: COCO string to raster.
void decode(const std::string& in, const std::string& out, std::istream& arguments) {
  int width = 0, height = 0;
  arguments >> width >> height;
  const auto text = read<char>(in);
  write(out, rle_decode(rle_from_string({text.data(), text.size()}, width, height), width, height));
}

/// classes, boxes, threshold: output of layout v8 to rows of box, score, class.
void head(const std::string& in, const std::string& out, std::istream& arguments) {
  HeadSpec spec;
  float threshold = 0;
  arguments >> spec.classes >> spec.boxes >> threshold;
  auto values = read<float>(in);
  Tensor tensor = Tensor::empty({1, 4 + spec.classes, spec.boxes});
  std::memcpy(tensor.data, values.data(), tensor.bytes());
  const Candidates found = decode_head(tensor, 0, spec, threshold);
  std::vector<float> rows;
  for (std::size_t i = 0; i < found.boxes.size(); ++i) {
    const Box& b = found.boxes[i];
    for (const float v : {b.x0, b.y0, b.x1, b.y1, found.scores[i], static_cast<float>(found.classes[i])}) {
      rows.push_back(v);
    }
  }
  write(out, rows);
}

void answer(const std::string& line) {
  std::istringstream arguments(line);
  std::string command, in, out;
  arguments >> command >> in >> out;
  if (command == "letterbox") return letterbox(in, out, arguments);
  if (command == "to_picture") return to_picture(in, out, arguments);
  if (command == "nms") return nms(in, out, arguments);
  if (command == "mask") return mask(in, out, arguments);
  if (command == "encode") return encode(in, out, arguments);
  if (command == "decode") return decode(in, out, arguments);
  if (command == "head") return head(in, out, arguments);
  throw std::invalid_argument("no command " + command);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    try {
      answer(line);
      std::cout << "ok" << std::endl;
    } catch (const std::exception& error) {
      std::cout << "error: " << error.what() << std::endl;
    }
  }
}
