#include "models/package.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <utility>

#include "tests/models/package_checks.hpp"

namespace millrace {
namespace {

TEST_CASE("sha256 of known texts") {
  CHECK(sha256_hex("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const TemporaryFolder folder;
  const std::string long_text(3'000'001, 'x');
  write_file(folder.path() / "f", long_text);
  CHECK(sha256_file_hex((folder.path() / "f").string()) == sha256_hex(long_text));
}

TEST_CASE("all of a detector's package is read") {
  const TemporaryFolder folder;
  write_package(folder.path(), detector_yaml());
  const Package package = read_package(folder.path());
  CHECK(package.name == "tiny");
  CHECK(package.task->name == "detect");
  CHECK(package.architecture == "yolox");
  CHECK(package.input.width == 32);
  CHECK(package.input.height == 64);
  CHECK(package.input.bgr);
  CHECK(package.input.mode == ResizeMode::letterbox);
  CHECK(package.input.rounding == SideRounding::down);
  CHECK(package.input.placement == Placement::top_left);
  CHECK(package.input.filter == ResizeFilter::cv2_linear);
  CHECK(package.input.pad == std::array<float, 3>{114, 114, 114});
  CHECK(package.number("layout") == 1);
  CHECK(package.number("boxes") == 42);
  CHECK(package.classes == std::vector<std::string>{"cat", "dog", "yes"});
  CHECK(package.max_batch == 1);
  CHECK(package.licence == "Apache-2.0");
  REQUIRE(package.files.size() == 1);
  CHECK(package.files[0].bytes == static_cast<std::int64_t>(torchscript_looks().size()));
  CHECK(package.fingerprint == sha256_file_hex((folder.path() / "model.yaml").string()));
  REQUIRE(package.methods.size() == 1);
  CHECK(package.methods[0].name == "forward");
  CHECK(package.methods[0].maximum == 1);
  CHECK(outputs_of(package, "forward", {1, 0})[0].shape == std::vector<std::int64_t>{1, 42, 6});
  CHECK(inputs_of(package, "forward", {5, 0})[0].shape == std::vector<std::int64_t>{5, 3, 64, 32});
  CHECK_THROWS_AS(outputs_of(package, "encode", {1, 1}), std::invalid_argument);
  const std::string text = describe(package);
  for (const char* part :
       {"tiny", "32 x 64 BGR", "letterbox", "42 boxes", "cat, dog, yes", "Apache-2.0", package.fingerprint.c_str()})
    CHECK(text.find(part) != std::string::npos);
}

TEST_CASE("the original of a package is shown, and its length has a limit") {
  const auto with_original = [](const std::string& text) {
    return replaced(detector_yaml(), "architecture: yolox\n", "architecture: yolox\noriginal: " + text + "\n");
  };
  const TemporaryFolder folder;
  write_package(folder.path(), detector_yaml());
  CHECK(describe(read_package(folder.path())).find("original") == std::string::npos);
  for (const std::string& text : {std::string("Ultralytics 8.4 YOLOX"), std::string(200, 'x')}) {
    write_package(folder.path(), with_original(text));
    const Package package = read_package(folder.path());
    CHECK(package.original == text);
    CHECK(describe(package).find("architecture  yolox\noriginal      " + text + "\n") != std::string::npos);
  }
  check_table(with_original("ORIGINAL"),
              {
                  {"ORIGINAL", std::string(201, 'x'), {":5: original: has 201 bytes", "at most 200"}},
                  {"ORIGINAL", "[Ultralytics]", {":5: original: expected text"}},
                  {"ORIGINAL", "''", {":5: original: expected text"}},
              });
}

TEST_CASE("measurements of a model are shown and not checked") {
  const TemporaryFolder folder;
  write_package(folder.path(), replaced(detector_yaml(), "licence:", "quality: {AP50: 0.931, scenes: 300}\nlicence:"));
  const Package package = read_package(folder.path());
  REQUIRE(package.quality.size() == 2);
  CHECK(describe(package).find("quality       AP50: 0.931\nquality       scenes: 300\n") != std::string::npos);
}

std::string with_methods(const std::string& methods) {
  return replaced(detector_yaml(), "licence:", "methods:\n" + methods + "licence:");
}

const char* forward_method =
    "  forward:\n    row: picture\n    maximum: 1\n"
    "    inputs: {images: {shape: [B, 3, H, W], dtype: image}}\n"
    "    outputs: {detections: {shape: [B, 42, 6], dtype: f32}}\n";

TEST_CASE("methods are in model.yaml, and a package without them is read, too") {
  const TemporaryFolder folder;
  write_package(folder.path(), with_methods(forward_method));
  CHECK(read_package(folder.path()).name == "tiny");
}

TEST_CASE("wrong methods") {
  check_table(with_methods(forward_method),
              {
                  {"row: picture", "row: frame", {"methods.forward.row", "picture, box, crop, window", "'frame'"}},
                  {"maximum: 1", "maximum: 0", {"methods.forward.maximum", "1 to 4096"}},
                  {"maximum: 1", "maximum: 1\n    rows: 1", {"methods.forward.rows: is not a key"}},
                  {"[B, 3, H, W]", "[B, 3, H, Z]", {"methods.forward.inputs.images.shape", "B, N, D, H or W", "'Z'"}},
                  {"[B, 42, 6]", "[B, 42, 0]", {"methods.forward.outputs.detections.shape", "'0'"}},
                  {"[B, 42, 6]", "[B, -1, 8]", {"methods.forward.outputs.detections.shape", "'-1'"}},
                  {"dtype: f32", "dtype: f64", {"methods.forward.outputs.detections.dtype", "image, f32, i64"}},
                  {"dtype: f32", "dtype: f32, unit: pixel", {"methods.forward.outputs.detections.unit: is not a key"}},
                  {"{detections: {shape: [B, 42, 6], dtype: f32}}", "{}", {"methods.forward.outputs", "got none"}},
                  {"    row: picture\n", "", {"methods.forward.row: is missing"}},
                  {forward_method, "  forward: 1\n", {"methods.forward: expected a mapping"}},
              });
}

TEST_CASE("the v8 layout has classes before boxes") {
  const TemporaryFolder folder;
  write_package(folder.path(), replaced(detector_yaml(), "end_to_end", "v8"));
  CHECK(outputs_of(read_package(folder.path()), "forward", {3, 0})[0].shape == std::vector<std::int64_t>{3, 7, 42});
}

TEST_CASE("an input with the mode centre_crop has the length of the shorter side, and Pillow's filter") {
  const std::string centre =
      replaced(replaced(detector_yaml(), "resize: letterbox", "resize: centre_crop, shorter_side: 36"),
               "rounding: down, padding: top_left, ", "");
  const TemporaryFolder folder;
  write_package(folder.path(), replaced(centre, "cv2_linear", "pil_bilinear_antialias"));
  const Package package = read_package(folder.path());
  CHECK(package.input.mode == ResizeMode::centre_crop);
  CHECK(package.input.shorter_side == 36);
  CHECK(describe(package).find("shorter side to 36 (pil_bilinear_antialias), its centre") != std::string::npos);
  check_table(centre, {{"name: tiny", "name: tiny", {"input.filter: must be pil_bilinear_antialias"}}});
}

TEST_CASE("all of a segmenter's package is read") {
  const TemporaryFolder folder;
  write_package(folder.path(), segmenter_yaml());
  const Package package = read_package(folder.path());
  CHECK(package.task->name == "segment");
  CHECK(package.input.mode == ResizeMode::longest_side);
  CHECK(package.input.filter == ResizeFilter::pil_bilinear_antialias);
  CHECK_FALSE(package.input.bgr);
  CHECK(package.input.pad == package.input.mean);
  CHECK(package.method("decode").maximum == 64);
  REQUIRE(package.methods.size() == 2);
  CHECK(package.method("encode").row == RowKind::picture);
  CHECK(package.method("decode").row == RowKind::box);
  CHECK(outputs_of(package, "encode", {3, 0})[0].shape == std::vector<std::int64_t>{3, 32, 16, 16});
  const auto decoded = outputs_of(package, "decode", {3, 7});
  REQUIRE(decoded.size() == 2);
  CHECK(decoded[0].shape == std::vector<std::int64_t>{7, 64, 64});
  CHECK(decoded[1].shape == std::vector<std::int64_t>{7});
  const auto inputs = inputs_of(package, "decode", {3, 7});
  REQUIRE(inputs.size() == 3);
  CHECK(inputs[1].shape == std::vector<std::int64_t>{7, 4});
  CHECK(inputs[2].dtype == DType::i64);
  CHECK(describe(package).find("64 x 64 a box") != std::string::npos);
}

TEST_CASE("wrong keys of a detector's model.yaml") {
  check_table(
      detector_yaml(),
      {
          {"schema: 1", "schema: 2", {":1: schema", "reads schema 1"}},
          {"schema: 1\n", "", {"schema: is missing"}},
          {"schema: 1", "schema: one", {"whole number", "'one'"}},
          {"name: tiny", "name: [tiny]", {":2: name", "expected text", "list of 1"}},
          {"name: tiny", "name: ''", {"name", "expected text"}},
          {"name: tiny", "nmae: tiny", {"name: is missing", "'nmae'"}},
          {"name: tiny", "name: tiny\nname: other", {"name: appears twice"}},
          {"task: detect", "task: detcet", {":3: task", "detect, segment", "did you mean 'detect'"}},
          {"task: detect",
           "task: track",
           {"expected one of detect, segment, embed, classify, regress, semantic, got 'track'"}},
          {"width: 32", "width: 0", {"input.width", "1 to 8192", "'0'"}},
          {"width: 32", "width: 1000000000", {"input.width"}},
          {"width: 32", "width: 1e2", {"input.width"}},
          {"width: 32, ", "", {"input.width: is missing"}},
          {"colour: bgr", "color: bgr", {"input.colour: is missing", "'color'"}},
          {"colour: bgr", "colour: bgra", {"rgb, bgr", "did you mean 'bgr'"}},
          {"scale: 1.0", "scale: nan", {"input.scale", "a number"}},
          {"scale: 1.0", "scale: 1.0x", {"input.scale", "'1.0x'"}},
          {"mean: [0, 0, 0]", "mean: [0, 0]", {"input.mean", "3 numbers", "list of 2"}},
          {"mean: [0, 0, 0]", "mean: [0, zero, 0]", {"input.mean: entry 1"}},
          {"std: [1, 1, 1]", "std: [1, 0, 1]", {"input.std", "above 0"}},
          {"resize: letterbox", "resize: letterbocks", {"did you mean 'letterbox'"}},
          {"resize: letterbox", "resize: stretch", {"input.rounding: has no meaning"}},
          {"resize: letterbox", "resize: letterbox, shorter_side: 232", {"input.shorter_side: has no meaning"}},
          {"filter: cv2_linear", "filter: nearest", {"cv2_linear, pil_bilinear_antialias"}},
          {"rounding: down, ", "", {"input.rounding: is missing", "down, half_even"}},
          {"pad: [114, 114, 114]", "pad: 114", {"input.pad", "3 numbers"}},
          {"pad: [114, 114, 114]", "pad: [114, 114, 114], gamma: 2", {"input.gamma: is not a key"}},
          {"layout: end_to_end", "layout: yolox", {"output.layout", "v8, end_to_end"}},
          {", boxes: 42", "", {"output.boxes: is missing"}},
          {"boxes: 42", "boxes: 0", {"output.boxes", "1 to 1000000"}},
          {"boxes: 42", "boxes: 42, strides: [8, 16, 32]", {"output.strides: is not a key"}},
          {"classes: [cat, dog, \"yes\"]\n", "", {"classes: is missing"}},
          {"classes: [cat, dog, \"yes\"]", "classes: [cat, [dog]]", {"classes: entry 1"}},
          {"max_batch: 1", "max_batch: 0", {"max_batch", "1 to 1024"}},
          {"max_batch: 1", "max_batch: 1\nmax_boxes: 5", {"max_boxes: has no meaning for a detector"}},
          {"max_batch: 1", "max_batch: 1\nmax_batches: 5", {"max_batches: is not a key", "did you mean 'max_batch'"}},
          {"licence: Apache-2.0", "license: Apache-2.0", {"licence: is missing", "'license'"}},
          {"files: {model.ts: HASH}", "files: {model.ts: HASH, ../evil: HASH}", {"'../evil' is not a plain file name"}},
          {"files: {model.ts: HASH}", "files: {model.ts: ABC}", {"64 lower-case hexadecimal digits"}},
          {"files: {model.ts: HASH}", "files: {other.ts: HASH}", {"files: model.ts is missing"}},
          {"files: {model.ts: HASH}", "files: [model.ts]", {"files: expected a mapping"}},
          {"name: tiny", "name: [tiny", {"is not valid YAML"}},
          {"name: tiny", "? [a, b]\n: 1\nname: tiny", {"keys must be plain words"}},
      });
}

std::string segmenter_with(const char* methods) {
  return replaced(segmenter_yaml(), "licence:", std::string(methods) + "licence:");
}

constexpr const char* segmenter_methods = R"(methods:
  encode:
    row: picture
    maximum: 16
    inputs: {images: {shape: [B, 3, H, W], dtype: image}}
    outputs: {embedding: {shape: [B, 32, 16, 16], dtype: image}}
  decode:
    row: box
    maximum: 64
    inputs: {embedding: {shape: [B, 32, 16, 16], dtype: image}, boxes: {shape: [N, 4], dtype: f32}, image_index: {shape: [N], dtype: i64}}
    outputs: {logits: {shape: [N, 64, 64], dtype: f32}, iou: {shape: [N], dtype: f32}}
)";

TEST_CASE("methods may be declared, with symbols or numbers for the input's sides; unused methods are allowed") {
  for (const std::string& yaml :
       {segmenter_with(segmenter_methods),
        replaced(segmenter_with(segmenter_methods), "[B, 3, H, W]", "[B, 3, 256, 256]"),
        replaced(segmenter_with(segmenter_methods), "methods:\n", "methods:\n  points: {row: box}\n")}) {
    const TemporaryFolder folder;
    write_package(folder.path(), yaml);
    CHECK(read_package(folder.path()).methods.size() == 2);
  }
}

TEST_CASE("declared methods that are not those of the task") {
  check_table(
      segmenter_with(segmenter_methods),
      {
          {"  decode:\n", "  decod:\n", {"methods.decode: is missing", "'decod'"}},
          {"row: box", "row: picture", {"methods.decode.row: expected box, got picture"}},
          {"row: box", "row: line", {"expected one of picture, box, crop, window, got 'line'"}},
          {"maximum: 64", "maximum: 32", {"methods.decode.maximum: is 32, but the rest of this file says 64"}},
          {"shape: [N, 4]",
           "shape: [N, 5]",
           {"methods.decode.inputs: expected", "boxes f32 [N, 4]", "boxes f32 [N, 5]"}},
          {"shape: [N, 4]", "shape: [N, 0]", {"boxes.shape: expected whole numbers above 0, B, N, D, H or W, got '0'"}},
          {"[B, 3, H, W]", "[B, 3, H, H, W]", {"methods.encode.inputs: expected images image [B, 3, H, W]"}},
          {"[B, 3, H, W]", "[B, 3, 256, 255]", {"methods.encode.inputs"}},
          {"dtype: i64", "dtype: i32", {"image_index i64 [N]", "image_index i32 [N]"}},
          {"dtype: i64", "dtype: int", {"expected one of image, f32, i64, i32, u8, got 'int'"}},
          {", iou: {shape: [N], dtype: f32}", "", {"methods.decode.outputs: expected", "iou f32 [N]"}},
          {"maximum: 64\n", "maximum: 64\n    colour: red\n", {"methods.decode.colour: is not a key"}},
      });
}

const char* embedder_yaml() {
  return R"(schema: 1
name: tiny-embedder
task: embed
architecture: mobilenet_v2
input: {width: 32, height: 32, colour: rgb, scale: 1.0, mean: [0, 0, 0], std: [1, 1, 1], resize: stretch, filter: pil_bilinear_antialias}
output: {dimensions: 4, normalised: no}
max_batch: 8
classes: [cat, dog, bird]
matrix: {file: classes.f32, bias: yes}
licence: MIT
files: {model.ts: HASH, classes.f32: MATRIX}
)";
}

// 0, 0.5, 1, ...
std::vector<float> matrix_numbers(std::size_t count) {
  std::vector<float> numbers(count);
  for (std::size_t i = 0; i < count; ++i) numbers[i] = 0.5F * static_cast<float>(i);
  return numbers;
}

void write_embedder(const std::filesystem::path& folder, const std::string& yaml,
                    const std::vector<float>& numbers = matrix_numbers(3 * (4 + 1))) {
  const std::string matrix(reinterpret_cast<const char*>(numbers.data()), 4 * numbers.size());
  write_package(folder, replaced(yaml, "MATRIX", sha256_hex(matrix)));
  write_file(folder / "classes.f32", matrix);
}

TEST_CASE("all of an embedder's package is read") {
  const TemporaryFolder folder;
  write_embedder(folder.path(), embedder_yaml());
  const Package package = read_package(folder.path());
  CHECK(package.task->name == "embed");
  CHECK(package.number("dimensions") == 4);
  CHECK(package.classes.size() == 3);
  REQUIRE(package.matrix);
  CHECK(package.matrix->file == "classes.f32");
  CHECK(package.matrix->bias);
  CHECK(*package.matrix->numbers == matrix_numbers(15));
  CHECK(package.method("embed").row == RowKind::crop);
  CHECK(package.method("embed").maximum == 8);
  CHECK(outputs_of(package, "embed", {5, 0})[0].shape == std::vector<std::int64_t>{5, 4});
  CHECK(describe(package).find("vectors of 4 dimensions, a matrix of 3 classes") != std::string::npos);
  CHECK(describe(package).find("8 crops a call") != std::string::npos);
  Package large = package;
  large.classes.assign(1000, "x");
  CHECK(describe(large).find("and 900 more in model.yaml\n") != std::string::npos);
}

TEST_CASE("an embedder's matrix must be listed, as large as its classes, and have some") {
  const TemporaryFolder folder;
  write_embedder(folder.path(), embedder_yaml(), matrix_numbers(11));
  CHECK(error_of(folder.path())
            .find("classes.f32: has 44 bytes, but 3 classes of 4 dimensions and a bias in float32 need "
                  "60") != std::string::npos);
  write_embedder(folder.path(), replaced(embedder_yaml(), "file: classes.f32", "file: other.f32"));
  CHECK(error_of(folder.path()).find("matrix.file is 'other.f32', but the key files does not list it") !=
        std::string::npos);
  write_embedder(folder.path(), replaced(embedder_yaml(), "classes: [cat, dog, bird]\n", ""));
  CHECK(error_of(folder.path()).find("matrix: needs the key classes") != std::string::npos);
  write_embedder(folder.path(), replaced(replaced(embedder_yaml(), "classes: [cat, dog, bird]\n", ""),
                                         "matrix: {file: classes.f32, bias: yes}\n", ""));
  CHECK_FALSE(read_package(folder.path()).matrix);  // vectors without classes
}

TEST_CASE("an embedder's matrix must be finite") {
  const TemporaryFolder folder;
  for (const auto& [bad, word] : {std::pair{std::nanf(""), "nan"}, {-std::numeric_limits<float>::infinity(), "-inf"}}) {
    auto numbers = matrix_numbers(15);
    numbers[7] = bad;
    write_embedder(folder.path(), embedder_yaml(), numbers);
    CHECK(error_of(folder.path()).find(std::string("classes.f32: number 7 is ") + word + ", which is not finite") !=
          std::string::npos);
  }
}

TEST_CASE("wrong keys of a segmenter's model.yaml") {
  check_table(
      segmenter_yaml(),
      {
          {"embedding: [32, 16, 16]", "embedding: [32, 16]", {"output.embedding", "3 whole numbers"}},
          {"logits: [64, 64]", "logits: [64, -64]", {"output.logits: entry 1"}},
          {", resize: via_input", "", {"output.resize: is missing", "one of via_input, direct"}},
          {"resize: via_input", "resize: nearest", {"output.resize: expected one of via_input, direct"}},
          {"resize: via_input", "resize: direct", {"output: resize cannot be direct unless input.resize is stretch"}},
          {"max_boxes: 64\n", "", {"max_boxes: is missing"}},
          {"max_boxes: 64", "max_boxes: 64\nclasses: [a]", {"classes: has no meaning for a segmenter"}},
          {"resize: longest_side", "resize: longest_side, padding: centred", {"input.padding: has no meaning"}},
          {"resize: longest_side", "resize: letterbox, rounding: down, padding: centred", {"top_left for a segmenter"}},
          {"resize: longest_side", "resize: centre_crop", {"input.shorter_side: is missing", "1 to 8192"}},
          {"resize: longest_side", "resize: centre_crop, shorter_side: 232", {"cannot be centre_crop for a segmenter"}},
          {"output: {", "output: {layout: v8, ", {"output.layout: is not a key"}},
      });
}

TEST_CASE("a model.yaml that is not a mapping, empty, or huge") {
  const TemporaryFolder folder;
  write_package(folder.path(), "- a\n- b\n");
  CHECK(error_of(folder.path()).find("expected a mapping") != std::string::npos);
  write_package(folder.path(), "");
  CHECK(error_of(folder.path()).find("expected a mapping") != std::string::npos);
  write_package(folder.path(), std::string(2'000'000, '#'));
  CHECK(error_of(folder.path()).find("larger than 1 MB") != std::string::npos);
}

TEST_CASE("the message names what exists instead of a package") {
  const TemporaryFolder folder;
  const auto says = [](const std::string& error, const char* part) {
    CAPTURE(error);
    CHECK(error.find(part) != std::string::npos);
  };
  says(error_of(folder.path() / "nothing"), "no such folder");
  says(error_of(folder.path()), "has no model.yaml");
  write_file(folder.path() / "sam.pt", zip_of({"archive/data.pkl", "archive/data/0"}));
  says(error_of(folder.path() / "sam.pt"), "PyTorch checkpoint");
  write_file(folder.path() / "sam.ts", torchscript_looks());
  says(error_of(folder.path() / "sam.ts"), "put it into a folder as model.ts");
}

TEST_CASE("files of the wrong kind") {
  struct Foreign {
    std::string content;
    const char* says;
  };
  const std::vector<Foreign> table{
      {"", "this file is empty"},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 3\n", "Git LFS pointer"},
      {"\n <!DOCTYPE html><html>404</html>", "a web page"},
      {zip_of({"archive/data.pkl", "archive/data/0"}), "PyTorch checkpoint"},
      {torchscript_looks().substr(0, 100), "cut off"},
      {std::string("\x08\x06\x12\x07pytorch", 11), "ONNX"},
      {"hello", "of an unknown kind"},
  };
  for (const Foreign& foreign : table) {
    const TemporaryFolder folder;
    write_package(folder.path(), detector_yaml(), foreign.content);
    const std::string error = error_of(folder.path());
    CAPTURE(error);
    CHECK(error.find((folder.path() / "model.ts").string()) == 0);
    CHECK(error.find("expected a TorchScript model") != std::string::npos);
    const std::string says = foreign.content.empty() ? "empty" : foreign.says;
    CHECK(error.find(says) != std::string::npos);
  }
}

TEST_CASE("missing and changed files") {
  const TemporaryFolder folder;
  write_package(folder.path(), detector_yaml());
  write_file(folder.path() / "model.ts", zip_of({"model/data.pkl", "model/code/other.py"}));
  const std::string changed = error_of(folder.path());
  CHECK(changed.find("sha256 is") != std::string::npos);
  CHECK(changed.find(sha256_hex(torchscript_looks())) != std::string::npos);
  std::filesystem::remove(folder.path() / "model.ts");
  CHECK(error_of(folder.path()).find("is missing") != std::string::npos);
  std::filesystem::create_directory(folder.path() / "model.ts");
  CHECK(error_of(folder.path()).find("not a regular file") != std::string::npos);
}

}  // namespace
}  // namespace millrace
