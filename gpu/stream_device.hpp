#pragma once

#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/stream.hpp"

namespace millrace {

/// A device that computes on a stream.
///
/// One upload a raster. Boxes come back by themselves, as kernels write the few that are kept to mapped memory. All
/// masks of a trace() come down in one copy, whose size is bounded by what masks had before.
class StreamDevice final : public Device {
 public:
  explicit StreamDevice(std::unique_ptr<Stream> stream);
  ~StreamDevice() override;

  Tensor empty(std::vector<std::int64_t> shape, DType dtype) override;
  void zero(const Tensor& tensor) override;
  void copy(const Tensor& from, const Tensor& to) override;
  Image8 upload(const Image8& raster, std::shared_ptr<const void> keep) override;
  void letterbox(const Image8& raster, const LetterboxGeometry& geometry, const InputSpec& spec,
                 const Tensor& input) override;
  void find_boxes(const Tensor& output, const BoxSearch& search, std::span<const BoxTarget> targets) override;
  Prompts prompts(std::span<const Box> boxes, std::span<const int> image_index) override;
  void trace(std::span<const MaskCall> calls, float threshold) override;
  void wait() override;
  void abandon() override;

  Stream* stream() override { return stream_.get(); }
  [[nodiscard]] DeviceCounts counts() const override { return counts_; }

 private:
  struct Tables;
  struct Tracing;
  struct Results;
  template <class T>
  T* store(std::span<const T> values);
  template <class T>
  T* scratch(std::size_t count);
  const Tables& tables(int width, int height, const LetterboxGeometry& geometry, const InputSpec& spec);
  [[nodiscard]] Tracing begin(const MaskCall& call, float threshold);
  Results make_results(std::vector<Tracing> tracings);
  void bring_down(std::vector<Results>& all);

  const std::unique_ptr<Stream> stream_;
  DeviceCounts counts_;
  std::list<Tables> tables_;                       // of the sizes that came last, most recent first
  std::vector<std::shared_ptr<const void>> kept_;  // until the next wait
  std::vector<std::function<void()>> after_wait_;  // hand over what the kernels wrote
  std::vector<Results> results_;                   // of trace(), since the last wait
  double most_places_ = 0;                         // that a call had, in the mean of its masks
};

}  // namespace millrace
