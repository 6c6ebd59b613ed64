#include "gpu/ops/mirror.hpp"

#include <algorithm>
#include <stdexcept>

#include "gpu/device.hpp"

namespace millrace {
namespace {

void on_host(const MirrorJob& job) {
  for (std::int64_t row = 0; row < job.rows; ++row)
    std::reverse_copy(job.from + row * job.width, job.from + (row + 1) * job.width, job.to + row * job.width);
}

void body(const MirrorJob& job) {
  for (std::int64_t row = 0; row < job.rows; ++row) {
    for (int x = 0; x < job.width; ++x) mirror_value(job, row, x);
  }
}

double megapixels(const MirrorJob& job) { return static_cast<double>(job.rows) * job.width / 3e6; }

constexpr Operation<MirrorJob> operation{.name = "mirror", .host = on_host, .body = body, .units = megapixels};

}  // namespace

void mirror(Device& device, const Tensor& from, const Tensor& to) {
  if (from.dtype != DType::f32 || to.dtype != DType::f32 || from.shape.size() != 4 || from.shape != to.shape)
    throw std::invalid_argument("mirror: takes two tensors [N, 3, H, W] of f32");
  MirrorJob job;
  job.from = static_cast<const float*>(from.data);
  job.to = static_cast<float*>(to.data);
  job.rows = from.shape[0] * from.shape[1] * from.shape[2];
  job.width = static_cast<int>(from.shape[3]);
  device.run(operation, job);
}

}  // namespace millrace
