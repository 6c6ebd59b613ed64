#pragma once

#include "stages/stage.hpp"

namespace millrace {

/// RGB8 pixels in display orientation, rows packed. Smaller than Frame::info says when the picture did not fit a slab.
/// Host.
inline constexpr Field<PixelBuffer> pixels{"pixels"};

/// Pictures taken although their data have faults, and those of another format than their names say.
inline constexpr CounterInfo decode_warnings{"decode_warnings", "taken although their data have faults",
                                             "taken although its data has faults"};
inline constexpr CounterInfo wrong_extensions{"wrong_extensions", "of another format than their names say",
                                              "of another format than its name says"};

/// Decodes the file's bytes, or takes what a cache has of the picture. Reads Frame::file and Frame::info, writes
/// `pixels`. Host, any thread. The raster takes over the frame's byte credit and gives it back when it is freed. Throws
/// PictureError.
class Decode final : public FrameStage {
 public:
  static constexpr const char* name = "decode";
  struct Options {
    double max_megapixels = 300;
    int max_scans = 500;
    std::int64_t max_memory = std::int64_t{512} << 20;
    double accept_truncated = 1.0;
    void visit(OptionVisitor& v);
  };
  static StageInfo info(const Options& options);
  /// The limits that reading and decoding share.
  static DecodeLimits limits(const Options& options, std::int64_t slab_bytes);

  Decode(const Options& options, const StageContext& context);
  void run(Frame& frame) const override;

 private:
  const PixelSource& source_;
  Counters& counters_;
};

}  // namespace millrace
