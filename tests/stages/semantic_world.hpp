#pragma once

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "stages/decode.hpp"
#include "stages/semantic.hpp"
#include "tests/stages/stage_fixture.hpp"

/// Pictures of noise, and a model whose output depends on each pixel and on its place in the window.
namespace millrace {

inline constexpr int roi = 16;

inline Package semantic_package(int channels, int max_batch = 4, std::optional<float> threshold = {}) {
  Package package;
  package.folder = "/fake-semantic";
  package.name = "fake-semantic";
  package.task = &find_task("semantic");
  package.input.width = package.input.height = roi;
  package.channels.assign(3, {.mean = 0, .std = 255});
  package.output = {{"channels", {channels}}, {"activation", {threshold ? 1 : 0}}};
  package.threshold = threshold;
  for (int k = 0; k < channels; ++k) package.classes.push_back("class " + std::to_string(k));
  package.max_batch = max_batch;
  package.fingerprint = "hash of fake-semantic";
  set_methods(package);
  return package;
}

/// Logits that depend on the pixel, its channel, and its place in the window, so that seams would show.
inline float logit(float value, int k, int y, int x) {
  return value * static_cast<float>(k + 1) + std::sin(static_cast<float>(3 * y + 5 * x + 7 * k));
}

/// `before` gets the first red value of each window.
inline FakeEngine::Function model(int channels, Before before = {}) {
  return [=](std::string_view, std::span<const Tensor> inputs) {
    const Tensor& in = inputs.front();
    const std::int64_t rows = in.shape[0], height = in.shape[2], width = in.shape[3];
    std::vector<int> codes;
    for (std::int64_t b = 0; b < rows; ++b)
      codes.push_back(static_cast<int>(std::lround(in.row(b).host<const float>()[0] * 255)));
    if (before) before(codes);
    Tensor out = Tensor::empty({rows, channels, height, width});
    float* to = out.host<float>().data();
    for (std::int64_t b = 0; b < rows; ++b) {
      const float* const red = in.row(b).host<const float>().data();
      for (int k = 0; k < channels; ++k) {
        for (std::int64_t y = 0; y < height; ++y) {
          for (std::int64_t x = 0; x < width; ++x)
            *to++ = logit(red[y * width + x], k, static_cast<int>(y), static_cast<int>(x));
        }
      }
    }
    return std::vector<Tensor>{out};
  };
}

inline std::shared_ptr<Frame> noise_picture(int width, int height, int slot, int slots) {
  auto frame = picture(0, slot, slots);
  frame->columns.drop(pixels);
  frame->info.width = frame->info.pixel_width = width;
  frame->info.height = frame->info.pixel_height = height;
  const auto bytes = static_cast<std::size_t>(3 * width * height);
  PixelBuffer raster{width, height, {new std::uint8_t[bytes], std::default_delete<std::uint8_t[]>()}};
  std::mt19937 random(static_cast<unsigned>(width * 1000 + height));
  for (std::size_t i = 0; i < bytes; ++i) raster.data.get()[i] = static_cast<std::uint8_t>(2 + random() % 250);
  frame->columns.set(pixels, std::move(raster));
  return frame;
}

inline Batch batch_of_sizes(const std::vector<std::pair<int, int>>& sizes) {
  std::vector<std::shared_ptr<Frame>> frames;
  for (const auto& [width, height] : sizes)
    frames.push_back(noise_picture(width, height, static_cast<int>(frames.size()), static_cast<int>(sizes.size())));
  return Batch(std::move(frames));
}

inline std::vector<std::uint8_t> labels_of(const Frame& frame) {
  std::vector<std::uint8_t> all;
  frame.columns.get(class_map).labels->read([&](int /*first*/, std::span<const std::uint8_t> labels) {
    all.insert(all.end(), labels.begin(), labels.end());
  });
  return all;
}

/// Blended logits of a picture in double precision, window by window over the whole picture. Windows for which
/// `is_skipped` returns true add nothing; without any window, a value is not a number.
inline std::vector<double> slow_values(
    const Frame& frame, int channels, const WindowOptions& options,
    const std::function<bool(const PixelBuffer&, const WindowGrid&, std::int64_t)>& is_skipped = {}) {
  const PixelBuffer& raster = frame.columns.get(pixels);
  const WindowGrid grid({raster.height, 1, raster.width}, options);
  const std::vector<float> weights = window_weights(options);
  const auto values = static_cast<std::size_t>(raster.width * raster.height);
  std::vector<double> sums(values * static_cast<std::size_t>(channels)), total(values);
  for (std::int64_t w = 0; w < grid.windows(); ++w) {
    if (is_skipped && is_skipped(raster, grid, w)) continue;
    const Extent start = grid.start(w);
    for (int y = 0; y < roi; ++y) {
      for (int x = 0; x < roi; ++x) {
        const int py = start.rows + y - grid.before.rows, px = start.columns + x - grid.before.columns;
        if (py < 0 || px < 0 || py >= raster.height || px >= raster.width) continue;
        const auto at = static_cast<std::size_t>(py * raster.width + px);
        const auto weight = static_cast<double>(weights[static_cast<std::size_t>(y * roi + x)]);
        const float red = static_cast<float>(raster.data.get()[3 * at]) / 255;
        total[at] += weight;
        for (int k = 0; k < channels; ++k)
          sums[at * static_cast<std::size_t>(channels) + static_cast<std::size_t>(k)] +=
              weight * static_cast<double>(logit(red, k, y, x));
      }
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) sums[i] /= total[i / static_cast<std::size_t>(channels)];
  return sums;
}

struct World : StageFixture {
  explicit World(Package package, Before before = {}) : package_(std::move(package)) {
    add_view_without_detector();
    folder_ = add_model(package_, model(package_.number("channels"), std::move(before)), false);
  }

  /// Runs the two stages without a chain, which would free the values that no sink reads.
  void run(Batch& batch, OptionValues semantic = {}, const OptionValues& tiles = {}, Device* device = nullptr) {
    semantic.emplace("model", std::vector{folder_});
    StageContext with_device = context();
    if (device != nullptr) with_device.device = device;
    const Tiles cut(parse_options<Tiles::Options>("tiles", tiles), with_device);
    for (const auto& frame : batch.frames) cut.run(*frame);
    Semantic(parse_options<Semantic::Options>("semantic", semantic), with_device).run(batch);
  }

  Package package_;
  std::string folder_;
};

inline std::span<const float> values_of(const Frame& frame) {
  const ClassValues& values = frame.columns.get(class_values);
  return {values.values.get(), static_cast<std::size_t>(values.size.values() * values.channels)};
}

}  // namespace millrace
