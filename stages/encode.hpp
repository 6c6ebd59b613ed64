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

inline constexpr CounterInfo pictures_with_holes{"pictures_with_holes",
                                                 "with tiles or strips that cannot be read, and were left out",
                                                 "with tiles or strips that cannot be read, and were left out"};

/// The frame's line in its segment, without newline.
inline constexpr Field<std::string> segment_line{"segment_line"};

/// A side file with the labels of a picture.
struct LabelFileName {
  std::string name;  ///< relative to the output folder
  std::string hash;  ///< XXH3 of its content
};
void write_label_files(const std::vector<LabelFileName>& files, JsonWriter& json);
inline constexpr Field<std::vector<LabelFileName>> label_files{"label_files", write_label_files};

/// The line of a frame in its current state: the values of its columns, or the reason why it failed.
/// Throws std::domain_error if a number is not finite. Never throws for a failed frame.
std::string make_segment_line(const Frame& frame, const std::vector<View>& views);

/// The line of a frame after its last stage.
/// If a number is not finite or the line exceeds Journal::max_line_bytes, the frame fails and the line says so.
std::string finish_segment_line(Frame& frame, const std::vector<View>& views);

/// Makes the segment line of each frame, failed frames included, and the files of the sinks in `format`.
/// Reads the fields that are part of the line and those that the sinks read. Writes `segment_line`.
/// An error with one picture fails only that picture, and no sink then writes a file for it.
/// Throws StorageError if a file cannot be written, which ends the run.
class Encode final : public BatchStage {
 public:
  static constexpr const char* name = "encode";
  struct Options {
    std::vector<std::string> format;
    void visit(OptionVisitor& v);
    std::vector<const SinkEntry*> sinks() const;  ///< each once; throws UsageError for an unknown name
  };
  static StageInfo info(const Options& options);

  Encode(const Options& options, const StageContext& context);
  ~Encode() override;
  void run(Batch& batch) const override;

 private:
  // A sink with its side files. The first file makes their folder, so a refused run leaves no folder behind.
  struct Sink {
    const SinkEntry* entry = nullptr;
    std::unique_ptr<PictureSink> sink{};
    // Several threads may write the first file of a sink at once, and `run` is const.
    mutable std::once_flag once{};
    mutable std::optional<SideFiles> files{};
  };
  // The file of a sink: its bytes, or the file itself.
  struct Content {
    std::vector<std::uint8_t> bytes{};
    std::optional<SideFiles::Pending> file{};
  };
  using Contents = std::vector<Content>;
  Contents encode_sinks(Frame& frame) const;
  void name_label_files(Frame& frame, Contents& contents) const;
  void write(Contents& contents, const Item& item) const;
  const SideFiles& files_of(const Sink& sink) const;

  const StageContext& context_;
  std::deque<Sink> sinks_;
};

}  // namespace millrace
