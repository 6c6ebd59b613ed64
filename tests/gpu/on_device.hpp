#pragma once

#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/stream.hpp"
#include "tests/gpu/streams/make_stream.hpp"

namespace millrace {

/// Copies host values to a device, in place of a model's output.
inline Tensor on(Device& device, const std::vector<float>& values, std::vector<std::int64_t> shape) {
  Tensor tensor = device.empty(std::move(shape));
  if (Stream* stream = device.stream()) {
    static std::deque<std::vector<float>> kept;  // the copy runs later, so the values must outlive this call
    kept.push_back(values);
    stream->upload(kept.back().data(), tensor.data, tensor.bytes());
  } else {
    std::memcpy(tensor.data, values.data(), tensor.bytes());
  }
  return tensor;
}

template <class T>
std::vector<T> values_of(Device& device, const Tensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(tensor.elements()));
  if (values.empty()) return values;
  if (Stream* stream = device.stream()) {
    stream->download(tensor.data, values.data(), tensor.bytes());
    stream->wait();
  } else {
    std::memcpy(values.data(), tensor.data, tensor.bytes());
  }
  return values;
}

inline std::vector<std::uint8_t> noise(int width, int height, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(3 * width * height));
  for (auto& value : pixels) value = static_cast<std::uint8_t>(random());
  return pixels;
}

/// The CPU, and a device with the stream under test (make_stream.hpp).
struct HostAndDevice {
  Device host;
  Device device{make_stream()};
};

}  // namespace millrace
