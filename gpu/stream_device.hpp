#pragma once

#include <functional>
#include <list>
#include <memory>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/stream.hpp"

namespace millrace {

/// What a stream was asked for, apart from kernels.
struct StreamCounts {
  std::int64_t uploads = 0;    ///< rasters
  std::int64_t downloads = 0;  ///< of masks; those of a wait come in one
  std::int64_t waits = 0;
  std::int64_t overflows = 0;  ///< waits whose masks had more outline than there was room for, and so took one more
};

/// A device that computes on a stream.
///
/// One upload a raster. Boxes come back by themselves, as kernels write the few that are kept to mapped memory. All masks
/// since the last wait come down in one copy, whose size is bounded by what masks had before.
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
  void trace(const Tensor& logits, const Tensor& predicted_iou, float threshold,
             std::span<const MaskTarget> targets) override;
  void wait() override;

  Stream& stream() { return *stream_; }
  const StreamCounts& counts() const { return counts_; }

 private:
  struct Tables;
  struct Chunk;
  struct Tracing;
  template <class T>
  T* store(std::span<const T> values);
  template <class T>
  T* scratch(std::size_t count);
  const Tables& tables(int width, int height, const LetterboxGeometry& geometry, const InputSpec& spec);
  void place(Tracing& tracing);
  void download_chunks();
  [[nodiscard]] const std::uint32_t* words_of(const Tracing& tracing) const;

  const std::unique_ptr<Stream> stream_;
  StreamCounts counts_;
  std::list<Tables> tables_;                           // of the sizes that came last, most recent first
  std::vector<std::shared_ptr<const void>> kept_;      // until the next wait
  std::vector<std::function<void()>> after_wait_;      // hand over what the kernels wrote
  std::vector<std::unique_ptr<Tracing>> tracings_;     // since the last wait
  std::vector<Chunk> chunks_;                          // what they write
  std::size_t last_bytes_ = 0;                         // the most that came down in a wait
  double most_places_ = 0;                             // that a call had, in the mean of its masks
  double places_a_mask_;                               // what a call gets room for
};

}  // namespace millrace
