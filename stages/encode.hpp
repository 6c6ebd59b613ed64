#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/sinks/side_files.hpp"
#include "stages/stage.hpp"

namespace millrace {

class PictureSink;
struct SinkEntry;

/// The frame's line of its segment, without newline.
inline constexpr Field<std::string> segment_line{"segment_line"};

/// The line of a frame in its present state: what all columns write, or why it failed. Throws std::domain_error when a
/// number is not finite (never for a failed frame).
std::string make_segment_line(const Frame& frame, const std::vector<View>& views);

/// The same for a frame that is done. Where its values make no line that the journal takes (a number that is not
/// finite, more than Journal::max_line_bytes), the frame fails and its line says so.
std::string finish_segment_line(Frame& frame, const std::vector<View>& views);

/// Writes each frame's segment line, failed frames included, and what the sinks asked for make of it. Reads what stands
/// in the line, and what the sinks read; writes `segment_line`. Host, any thread. What goes wrong with one picture
/// fails that picture; throws StorageError when a side file cannot be written.
class Encode final : public BatchStage {
 public:
  static constexpr const char* name = "encode";
  struct Options {
    std::vector<std::string> format;
    void visit(OptionVisitor& v);
    std::vector<const SinkEntry*> sinks() const;  ///< throws UsageError where there is no such sink
  };
  static StageInfo info(const Options& options);

  Encode(const Options& options, const StageContext& context);
  ~Encode() override;
  void run(Batch& batch) const override;

 private:
  // A sink with its side files. Their folder is made with the first of them, so that a run that is refused leaves none.
  struct Sink {
    const SinkEntry* entry = nullptr;
    std::unique_ptr<PictureSink> sink{};
    // `run` is const, and several threads may write the first file of a sink.
    mutable std::once_flag once{};
    mutable std::optional<SideFiles> files{};
  };
  using Contents = std::vector<std::vector<std::uint8_t>>;
  Contents encode_sinks(Frame& frame) const;
  void write(const Contents& contents, const Item& item) const;

  const StageContext& context_;
  std::deque<Sink> sinks_;
};

}  // namespace millrace
