// Runs exported packages in the C++ engine. The fixture `packages` (make_packages.sh) makes them; without them the tests
// skip.
#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <span>

#include "base/half.hpp"
#include "gpu/device.hpp"
#include "models/engines/torch_plugin.hpp"

namespace millrace {
namespace {

Device host;

std::filesystem::path packages() {
  const char* folder = std::getenv("MILLRACE_TEST_PACKAGES");
  return folder == nullptr ? "test-packages" : folder;
}

bool missing(const char* name) {
  if (std::filesystem::exists(packages() / name)) return false;
  MESSAGE("skipped: " << (packages() / name).string() << " does not exist (python set or test data missing)");
  return true;
}

std::vector<float> read_floats(const std::filesystem::path& file) {
  std::vector<float> values(std::filesystem::file_size(file) / sizeof(float));
  std::ifstream(file, std::ios::binary)
      .read(reinterpret_cast<char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

Tensor random_normal(std::vector<std::int64_t> shape, unsigned seed, float mean = 0, float deviation = 1) {
  Tensor tensor = Tensor::empty(std::move(shape));
  std::mt19937 generator(seed);
  std::normal_distribution<float> distribution(mean, deviation);
  for (float& value : tensor.host<float>()) value = distribution(generator);
  return tensor;
}

/// Rows [first, first + count) along the first dimension, copied.
Tensor rows(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  auto shape = tensor.shape;
  const std::size_t row_bytes = tensor.bytes() / static_cast<std::size_t>(shape[0]);
  shape[0] = count;
  Tensor part = Tensor::empty(shape, tensor.dtype);
  std::memcpy(part.data, static_cast<const char*>(tensor.data) + static_cast<std::size_t>(first) * row_bytes,
              part.bytes());
  return part;
}

double deviation(std::span<const float> values) {
  double sum = 0, squares = 0;
  for (const float value : values) {
    sum += value;
    squares += double{value} * value;
  }
  const auto n = static_cast<double>(values.size());
  return std::sqrt(std::max(0.0, squares / n - sum / n * sum / n));
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - b[i]));
  return largest;
}

/// The bound for fp32 with seeded weights: 1e-4 of the standard deviation.
void check_close(const Tensor& a, const Tensor& b) {
  CHECK(a.shape == b.shape);
  CHECK(largest_difference(a.host<float>(), b.host<float>()) <= 1e-4 * deviation(b.host<float>()));
}

TEST_CASE("YOLOX-nano on street.jpg gives what ONNX Runtime gives") {
  if (missing("yolox.pkg") || missing("yolox_reference")) return;
  const Package package = read_package(packages() / "yolox.pkg");
  CHECK(package.max_batch == 64);
  CHECK(package.input.bgr);
  const auto engine = load_torch_engine(package, {.threads = 2});
  warm_up(*engine, package, {{"forward", 1}}, host);
  const auto input = read_floats(packages() / "yolox_reference/input.f32");
  const auto expected = read_floats(packages() / "yolox_reference/output.f32");
  Tensor images = Tensor::empty({1, 3, 416, 416});
  REQUIRE(images.host<float>().size() == input.size());
  std::copy(input.begin(), input.end(), images.host<float>().begin());
  const auto outputs = engine->call("forward", std::span(&images, 1));
  constexpr std::size_t boxes = 3549;
  CHECK(outputs[0].shape == std::vector<std::int64_t>{1, 84, boxes});
  const auto found = std::span<const float>(outputs[0].host<float>());
  CHECK(largest_difference(found.first(4 * boxes), std::span(expected).first(4 * boxes)) < 0.05);  // input pixels
  CHECK(largest_difference(found.subspan(4 * boxes), std::span(expected).subspan(4 * boxes)) < 2e-4);
  // The model finds the persons: the highest score of class 0 is 0.85, as in the README of the test data.
  CHECK(std::ranges::max(found.subspan(4 * boxes, boxes)) == doctest::Approx(0.85).epsilon(0.01));
}

/// The same values in 16 bits.
Tensor narrowed(const Tensor& tensor, DType type) {
  Tensor result = Tensor::empty(tensor.shape, type);
  const auto values = tensor.host<float>();
  std::transform(values.begin(), values.end(), result.host<std::uint16_t>().begin(),
                 [&](float value) { return type == DType::bf16 ? to_bf16(value) : to_f16(value); });
  return result;
}

/// Values of 16 bits in float32.
Tensor widened(const Tensor& tensor) {
  Tensor result = Tensor::empty(tensor.shape);
  const auto bits = tensor.host<std::uint16_t>();
  std::transform(bits.begin(), bits.end(), result.host<float>().begin(), [&](std::uint16_t value) {
    if (tensor.dtype == DType::bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
    const int exponent = (value >> 10) & 31, mantissa = value & 1023;
    const float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                          : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
    REQUIRE(exponent < 31);  // neither infinity nor NaN
    return (value & 0x8000) != 0 ? -magnitude : magnitude;
  });
  return result;
}

double rms_difference(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(squares / static_cast<double>(a.size()));
}

TEST_CASE("YOLOX-nano in float16 finds the same objects as in float32") {
  if (missing("yolox.pkg") || missing("yolox_reference")) return;
  const Package package = read_package(packages() / "yolox.pkg");
  const auto input = read_floats(packages() / "yolox_reference/input.f32");
  Tensor images = Tensor::empty({1, 3, 416, 416});
  std::copy(input.begin(), input.end(), images.host<float>().begin());
  const auto detections = [&](Precision precision) {
    const auto engine = load_torch_engine(package, {.threads = 2, .precision = precision});
    const Tensor given = precision == Precision::fp32 ? images : narrowed(images, DType::f16);
    return engine->call("forward", std::span(&given, 1))[0];
  };
  const Tensor wide = detections(Precision::fp32), narrow = detections(Precision::fp16);
  CHECK(narrow.dtype == DType::f32);
  constexpr std::size_t boxes = 3549, channels = 84;
  const auto a = wide.host<float>(), b = narrow.host<float>();
  int seen = 0;
  for (std::size_t box = 0; box < boxes; ++box) {
    std::size_t best = 4;
    for (std::size_t channel = 5; channel < channels; ++channel)
      best = a[channel * boxes + box] > a[best * boxes + box] ? channel : best;
    if (a[best * boxes + box] < 0.3F) continue;
    ++seen;
    CAPTURE(box);
    CHECK(b[best * boxes + box] == doctest::Approx(a[best * boxes + box]).epsilon(0.02));
    for (const std::size_t channel : {0U, 1U, 2U, 3U})
      CHECK(std::abs(a[channel * boxes + box] - b[channel * boxes + box]) < (channel < 2 ? 0.5F : 1.0F));
  }
  CHECK(seen > 10);
}

// Bounds relative to the standard deviation, with seeded weights; docs/performance_cpu.md has them, too.
constexpr double largest_rms = 0.03, largest_of_all = 0.2;

void segmenter_stands_16_bits(const char* name, Precision precision) {
  CAPTURE(name);
  CAPTURE(static_cast<int>(precision));
  const Package package = read_package(packages() / name);
  const Tensor images = random_normal({2, 3, package.input.height, package.input.width}, 3);
  Tensor boxes = Tensor::empty({3, 4}), index = Tensor::empty({3}, DType::i64);
  const auto side = static_cast<float>(package.input.width);
  for (std::size_t n = 0; n < 3; ++n) {
    const float x = side * 0.2F * static_cast<float>(n), y = side * 0.15F;
    const std::array<float, 4> box{x, y, x + side * 0.35F, y + side * 0.5F};
    std::copy(box.begin(), box.end(), boxes.host<float>().begin() + static_cast<std::ptrdiff_t>(n) * 4);
    index.host<std::int64_t>()[n] = n == 1 ? 1 : 0;
  }
  const auto wide = load_torch_engine(package, {.threads = 2});
  const auto narrow = load_torch_engine(package, {.threads = 2, .precision = precision});
  const Tensor embedding = wide->call("encode", std::span(&images, 1))[0];
  const Tensor given = narrowed(images, image_type(precision));
  const Tensor own = narrow->call("encode", std::span(&given, 1))[0];
  REQUIRE(own.dtype == image_type(precision));

  // Compares embeddings, not logits: the deviation of logits comes mostly from the bias, which hides errors of the weights.
  const Tensor near = widened(own);
  const auto e = embedding.host<float>(), f = near.host<float>();
  CHECK(rms_difference(e, f) <= largest_rms * deviation(e));
  CHECK(largest_difference(e, f) <= largest_of_all * deviation(e));

  const auto decode = [&](Engine& engine, const Tensor& from) {
    const std::vector<Tensor> inputs{from, boxes, index};
    auto outputs = engine.call("decode", inputs);
    CHECK(outputs[0].dtype == DType::f32);
    CHECK(outputs[1].dtype == DType::f32);
    return outputs;
  };
  const auto reference = decode(*wide, embedding), ours = decode(*narrow, own);
  const auto a = reference[0].host<float>(), b = ours[0].host<float>();
  std::int64_t both = 0, either = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    both += a[i] > 0 && b[i] > 0;
    either += a[i] > 0 || b[i] > 0;
  }
  CHECK(rms_difference(a, b) <= largest_rms * deviation(a));
  CHECK(largest_difference(a, b) <= largest_of_all * deviation(a));
  CHECK(either > 0);
  CHECK(static_cast<double>(both) >= 0.995 * static_cast<double>(either));
  for (std::size_t n = 0; n < 3; ++n)
    CHECK(ours[1].host<float>()[n] == doctest::Approx(reference[1].host<float>()[n]).epsilon(0.02));
}

TEST_CASE("segmenters in bfloat16 and in float16 give masks near those in float32") {
  for (const char* name : {"sam_small.pkg", "mobile_sam.pkg"}) {
    if (missing(name)) continue;
    for (const Precision precision : {Precision::bf16, Precision::fp16}) segmenter_stands_16_bits(name, precision);
  }
}

TEST_CASE("YOLOv8n gives the same for a picture alone and in a batch") {
  if (missing("yolov8n.pkg")) return;
  const Package package = read_package(packages() / "yolov8n.pkg");
  const auto engine = load_torch_engine(package, {.threads = 2});
  warm_up(*engine, package, {{"forward", 2}}, host);
  const Tensor images = random_normal({3, 3, 640, 640}, 1, 0.5F, 0.1F);
  const auto together = engine->call("forward", std::span(&images, 1));
  const Tensor second = rows(images, 1, 1);
  check_close(rows(together[0], 1, 1), engine->call("forward", std::span(&second, 1))[0]);
}

void segmenter_is_one_function(const char* name) {
  const Package package = read_package(packages() / name);
  const auto engine = load_torch_engine(package, {.threads = 2});
  const auto plain = load_torch_engine(package, {.threads = 2, .freeze = false});
  warm_up(*engine, package, {{"encode", 1}, {"decode", 2}}, host);

  const Tensor images = random_normal({3, 3, package.input.height, package.input.width}, 2);
  const Tensor embedding = engine->call("encode", std::span(&images, 1))[0];
  const Tensor last = rows(images, 2, 1);
  check_close(rows(embedding, 2, 1), engine->call("encode", std::span(&last, 1))[0]);
  const Tensor first = rows(images, 0, 1);
  check_close(rows(embedding, 0, 1), plain->call("encode", std::span(&first, 1))[0]);
  const auto channels_first = load_torch_engine(package, {.threads = 2, .channels_last = false});
  check_close(rows(embedding, 0, 1), channels_first->call("encode", std::span(&first, 1))[0]);
  // Another picture has another embedding; else the checks above would prove nothing.
  CHECK(largest_difference(rows(embedding, 0, 1).host<float>(), rows(embedding, 1, 1).host<float>()) > 0.1);

  const std::vector<std::int64_t> picture_of{0, 2, 1, 1, 2, 0, 2};
  const auto count = static_cast<std::int64_t>(picture_of.size());
  const auto side = static_cast<float>(package.input.width);
  Tensor boxes = Tensor::empty({count, 4});
  Tensor index = Tensor::empty({count}, DType::i64);
  for (std::int64_t n = 0; n < count; ++n) {
    const float x = side * 0.05F * static_cast<float>(n + 1), y = side * 0.07F * static_cast<float>(n);
    const std::array<float, 4> box{x, y, x + side * 0.3F, y + side * 0.25F};
    std::copy(box.begin(), box.end(), boxes.host<float>().begin() + n * 4);
    index.host<std::int64_t>()[static_cast<std::size_t>(n)] = picture_of[static_cast<std::size_t>(n)];
  }
  const std::vector<Tensor> packed_inputs{embedding, boxes, index};
  const auto packed = engine->call("decode", packed_inputs);
  CHECK_NOTHROW(check_outputs(package, "decode", {3, count}, packed));

  for (std::int64_t n = 0; n < count; ++n) {
    CAPTURE(n);
    Tensor zero = Tensor::empty({1}, DType::i64);
    zero.host<std::int64_t>()[0] = 0;
    const std::vector<Tensor> inputs{rows(embedding, picture_of[static_cast<std::size_t>(n)], 1), rows(boxes, n, 1),
                                     zero};
    const auto alone = engine->call("decode", inputs);
    // Also checks the IoU of masks. The bound on logits is relative to their deviation,
    // which is large because of the bias far from the box.
    const Tensor ours = rows(packed[0], n, 1);
    std::int64_t both = 0, either = 0;
    for (std::size_t i = 0; i < ours.host<float>().size(); ++i) {
      const bool a = ours.host<float>()[i] > 0, b = alone[0].host<float>()[i] > 0;
      both += a && b;
      either += a || b;
    }
    CHECK(either > 0);
    CHECK(static_cast<double>(both) >= 0.999 * static_cast<double>(either));
    check_close(ours, alone[0]);
    CHECK(packed[1].host<float>()[static_cast<std::size_t>(n)] ==
          doctest::Approx(alone[1].host<float>()[0]).epsilon(1e-4));
    // The mask of a box is near the box: its middle is inside, the far corner of the input is not.
    const Box box{boxes.host<float>()[static_cast<std::size_t>(n) * 4],
                  boxes.host<float>()[static_cast<std::size_t>(n) * 4 + 1], 0, 0};
    const auto rows_of_logits = package.numbers("logits")[0], columns = package.numbers("logits")[1];
    const auto row = static_cast<std::int64_t>((box.y0 + side * 0.125F) / side * static_cast<float>(rows_of_logits));
    const auto column = static_cast<std::int64_t>((box.x0 + side * 0.15F) / side * static_cast<float>(columns));
    CHECK(ours.host<float>()[static_cast<std::size_t>(row * columns + column)] > 0);
    CHECK(ours.host<float>()[static_cast<std::size_t>(rows_of_logits * columns - 1)] < 0);
  }
}

TEST_CASE("the small segmenter: batch of 1 and 3, frozen and not, boxes packed and alone agree") {
  if (!missing("sam_small.pkg")) segmenter_is_one_function("sam_small.pkg");
}

TEST_CASE("MobileSAM: batch of 1 and 3, frozen and not, boxes packed and alone agree") {
  if (!missing("mobile_sam.pkg")) segmenter_is_one_function("mobile_sam.pkg");
}

}  // namespace
}  // namespace millrace
