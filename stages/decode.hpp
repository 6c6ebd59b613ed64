#pragma once

#include <optional>

#include "stages/stage.hpp"

namespace millrace {

/// RGB8 pixels in display orientation, rows packed, in host memory.
/// The raster is smaller than the picture if the picture did not fit a slab (PictureInfo::reduction).
inline constexpr Field<PixelBuffer> pixels{"pixels"};

/// Pictures that were decoded with warnings of the decoder.
inline constexpr CounterInfo decode_warnings{"decode_warnings", "accepted although their data have faults",
                                             "accepted although its data has faults"};
/// Pictures whose extension is that of another format.
inline constexpr CounterInfo wrong_extensions{"wrong_extensions", "whose format differs from their extension",
                                              "whose format differs from its extension"};

/// Pictures that the JPEG engines of a GPU decoded.
inline constexpr CounterInfo nvjpeg_decoded{"nvjpeg_decoded"};
/// Pictures of the share of decode.nvjpeg that the CPU decoded, because engines do not decode files of their kind.
inline constexpr CounterInfo nvjpeg_refused{"nvjpeg_refused"};
/// Pictures that the engines should have decoded. Their pixels may differ in the last bits from those of another run.
inline constexpr CounterInfo nvjpeg_failed{"nvjpeg_failed", "on which nvJPEG failed, so that the CPU decoded them",
                                           "on which nvJPEG failed, so that the CPU decoded it"};

/// Decodes the bytes of the file, or takes the pixels from a cache.
/// Reads Frame::file and Frame::info, writes `pixels`. Frees Frame::file.
/// A frame whose file is read in parts (Frame::region) passes without pixels.
/// The raster takes over the byte credit of the frame and gives it back when it is freed.
/// Throws PictureError, which fails the picture.
class Decode final : public FrameStage {
 public:
  static constexpr const char* name = "decode";
  struct Options {
    double max_megapixels = 300;
    int max_scans = 500;
    std::int64_t max_memory = std::int64_t{512} << 20;
    int level = -1;
    double mpp = 0;
    double accept_truncated = 1.0;
    double nvjpeg = 0;
    int volume = 0;
    void visit(OptionVisitor& v);
  };
  /// Throws UsageError if a level and micrometres are given.
  static StageInfo info(const Options& options);
  /// The limits for reading headers and for decoding.
  static DecodeLimits limits(const Options& options, std::int64_t slab_bytes);

  Decode(const Options& options, const StageContext& context);
  void run(Frame& frame) const override;

 private:
  std::optional<Decoded> decode_on_gpu(const Frame& frame, const PixelAllocator& allocate) const;

  const double share_of_gpu_;
  const PixelSource& source_;
  Counters& counters_;
};

}  // namespace millrace
