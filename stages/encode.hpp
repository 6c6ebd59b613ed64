#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "io/sinks/overlay_opener.hpp"
#include "io/sinks/side_files.hpp"
#include "stages/postprocess.hpp"
#include "stages/stage.hpp"

namespace millrace {

/// The frame's line of its segment, without newline.
inline constexpr Field<std::string> segment_line{"segment_line"};

/// The line of a frame in its present state: what all columns write, or why it failed. Throws std::domain_error when a
/// number is not finite (never for a failed frame).
std::string make_segment_line(const Frame& frame, const std::vector<View>& views);

/// The same for a frame that is done. Where its values make no line that the journal takes (a number that is not
/// finite, more than Journal::max_line_bytes), the frame fails and its line says so.
std::string finish_segment_line(Frame& frame, const std::vector<View>& views);

inline constexpr CounterInfo overlays_left_out{"overlays_left_out"};  ///< pictures longer than a JPEG can be

/// Writes each frame's segment line, failed frames included, and the side files asked for. Reads what stands in the
/// line, and `pixels` for overlays; writes `segment_line`. Host, any thread. What goes wrong with one picture
/// fails that picture; throws StorageError when a side file cannot be written.
class Encode final : public BatchStage {
 public:
  static constexpr const char* name = "encode";
  struct Options {
    std::vector<std::string> format;
    void visit(OptionVisitor& v);
    bool has(const char* kind) const;
  };
  static StageInfo info(const Options& options);

  Encode(const Options& options, const StageContext& context);
  void run(Batch& batch) const override;

 private:
  void write_side_files(Frame& frame) const;
  std::vector<std::uint8_t> encode_overlay(const Frame& frame) const;
  PixelBuffer overlay_raster(const Frame& frame, PictureInfo& info) const;

  /// Side files of one kind. Their folder is made with the first of them, so that a run that is refused leaves none.
  struct Kind {
    bool wanted = false;
    // `run` is const, and several threads may write the first file of a kind.
    mutable std::once_flag once{};
    mutable std::optional<SideFiles> files{};
  };
  void write_side_file(const Kind& kind, const char* folder, const char* suffix, const Item& item,
                       std::span<const std::uint8_t> content) const;

  const StageContext& context_;
  Kind overlays_, label_maps_;
  OverlayDrawing* overlay_drawing_ = nullptr;
  mutable std::mutex large_;  // one reduced picture at a time is decoded again for its overlay
};

}  // namespace millrace
