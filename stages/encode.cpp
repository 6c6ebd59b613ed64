#include "stages/encode.hpp"

#include <algorithm>
#include <stdexcept>

#include "io/files/decode_error.hpp"
#include "io/files/files.hpp"
#include "io/results/journal.hpp"
#include "io/results/json_line.hpp"
#include "stages/chain.hpp"
#include "stages/class_map.hpp"
#include "stages/points.hpp"
#include "stages/postprocess.hpp"
#include "stages/sinks/sink.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {
namespace {

// The objects of a frame in the form that sinks take.
std::vector<Object> objects_of(const Frame& frame) {
  const Detections* found = frame.columns.find(detections);
  const std::vector<Mask>* outlines = frame.columns.find(masks);
  std::vector<Object> objects;
  if (found == nullptr) return objects;
  for (std::size_t i = 0; i < found->list.size(); ++i) {
    const Detection& detection = found->list[i];
    Object object;
    object.x = detection.x0;
    object.y = detection.y0;
    object.width = detection.x1 - detection.x0;
    object.height = detection.y1 - detection.y0;
    object.score = detection.score;
    object.class_id = detection.class_id;
    object.name = found->name_of(i);
    if (outlines != nullptr) {
      object.rle_counts = (*outlines)[i].counts;
      object.predicted_iou = (*outlines)[i].predicted_iou;
      object.area = (*outlines)[i].area;
    }
    objects.push_back(std::move(object));
  }
  return objects;
}

}  // namespace

void Encode::Options::visit(OptionVisitor& v) {
  std::string known;
  // From the table, so the help also names a new sink.
  for (const auto& sink : sink_table())
    known += (known.empty() ? "" : ", ") + sink.name + (sink.help.empty() ? "" : " (" + sink.help + ")");
  v.option("format", format, "sinks, in addition to the segments: " + known);
}

std::vector<const SinkEntry*> Encode::Options::sinks() const {
  std::vector<const SinkEntry*> named;
  for (const auto& kind : format) {
    const SinkEntry* const sink = &find_sink(kind);
    // A sink that is named twice would write each file twice.
    if (std::ranges::find(named, sink) == named.end()) named.push_back(sink);
  }
  return named;
}

StageInfo Encode::info(const Options& options) {
  StageInfo info{name,
                 Section::batch,
                 "lines of the segment files, and side files",
                 {},
                 {&segment_line, &label_files},
                 {&detections, &masks, &class_map, &points_found, &hole_pixels},
                 {&pictures_with_holes}};
  // Of all sinks, so that the keys in report.json do not depend on the format.
  for (const auto& sink : sink_table())
    info.counters.insert(info.counters.end(), sink.counters.begin(), sink.counters.end());
  for (const SinkEntry* sink : options.sinks())
    info.reads.insert(info.reads.end(), sink->reads.begin(), sink->reads.end());
  return info;
}

Encode::Encode(const Options& options, const StageContext& context) : context_(context) {
  for (const SinkEntry* entry : options.sinks()) {
    // Such a sink has only finish(), which the run calls at its end.
    if (entry->make == nullptr) continue;
    Sink& sink = sinks_.emplace_back();
    sink.entry = entry;
    sink.sink = entry->make(context);
  }
}

// Here, because the header only declares PictureSink.
Encode::~Encode() = default;

// Files get their names after all sinks and the line of the picture have succeeded, so a failed picture leaves no file.
void Encode::run(Batch& batch) const {
  for (const auto& frame : batch.frames) {
    // Before the line, which must say so if a sink fails the picture.
    Contents contents = encode_sinks(*frame);
    std::string line = finish_segment_line(*frame, context_.views);
    if (!frame->failed()) write(contents, frame->item);
    if (!frame->failed() && frame->columns.find(hole_pixels) != nullptr)
      context_.counters[pictures_with_holes].add(frame->item.path);
    frame->columns.set(segment_line, std::move(line));
  }
}

void Encode::write(Contents& contents, const Item& item) const {
  for (std::size_t i = 0; i < contents.size(); ++i) {
    auto& [bytes, file] = contents[i];
    if (!file && bytes.empty()) continue;
    if (!file) file.emplace(files_of(sinks_[i]).begin(item.id, item.path, bytes));
    file->commit();
    context_.counters.side_file_bytes += file->bytes();
  }
}

void write_label_files(const std::vector<LabelFileName>& files, JsonWriter& json) {
  json.begin_array();
  for (const LabelFileName& file : files) {
    json.begin_object();
    write_path("file", file.name, json);
    json.key("xxh3").value(file.hash).end_object();
  }
  json.end_array();
}

std::string make_segment_line(const Frame& frame, const std::vector<View>& views) {
  FrameRecord head;
  head.id = frame.item.id;
  head.path = frame.item.path;
  head.width = frame.info.width;
  head.height = frame.info.height;
  head.view = views[static_cast<std::size_t>(frame.item.view)].name;
  head.split = frame.split;
  if (frame.failed()) {
    head.failed = true;
    head.reason = frame.failure->reason;
    head.detail = frame.failure->detail;
  }
  JsonWriter json;
  json.begin_object();
  write_head(head, json);
  // A failed picture has no fields in its line, also not those of stages that succeeded.
  if (!frame.failed()) {
    frame.columns.write_line(json);
    if (const Detections* found = frame.columns.find(detections)) {
      json.key(line_keys("objects")).begin_array();
      for (std::size_t i = 0; i < found->list.size(); ++i) {
        json.begin_object();
        frame.columns.write_object(i, json);
        json.end_object();
      }
      json.end_array();
    }
  }
  json.end_object();
  return json.take();
}

std::string finish_segment_line(Frame& frame, const std::vector<View>& views) {
  try {
    std::string line = make_segment_line(frame, views);
    if (static_cast<std::int64_t>(line.size()) <= Journal::max_line_bytes) return line;
    frame.fail(Encode::name, Reason::too_large,
               "its segment line with the rows of side columns has " + std::to_string(line.size()) +
                   " bytes; the maximum is " + std::to_string(Journal::max_line_bytes) + " bytes");
  } catch (const PictureError& error) {
    frame.fail(Encode::name, error.reason(), error.what());
  } catch (const std::domain_error& error) {
    // JSON has no NaN and no infinity, so writing one throws.
    frame.fail(Encode::name, Reason::non_finite, error.what());
  }
  // Cannot fail: the second line has only the head and the failure.
  return make_segment_line(frame, views);
}

Encode::Contents Encode::encode_sinks(Frame& frame) const {
  Contents contents(sinks_.size());
  if (frame.failed() || sinks_.empty()) return {};
  try {
    const std::vector<Object> objects = objects_of(frame);
    for (std::size_t i = 0; i < sinks_.size(); ++i) contents[i].bytes = sinks_[i].sink->encode(frame, objects);
    if (frame.columns.find(class_map) != nullptr) name_label_files(frame, contents);
  } catch (const StorageError&) {
    throw;
  } catch (...) {
    fail_frame(frame, name, std::current_exception());
  }
  return contents;
}

// The line has the hashes of these files, so they are written first, under a temporary name.
void Encode::name_label_files(Frame& frame, Contents& contents) const {
  std::vector<LabelFileName> named;
  for (std::size_t i = 0; i < sinks_.size(); ++i) {
    const Sink& sink = sinks_[i];
    auto& [bytes, file] = contents[i];
    if (!sink.entry->of_labels || bytes.empty()) continue;
    const Item& item = frame.item;
    if (sink.sink->fills()) {
      file.emplace(
          files_of(sink).begin(item.id, item.path, [&](int descriptor) { sink.sink->fill(frame, descriptor); }));
    } else {
      file.emplace(files_of(sink).begin(item.id, item.path, bytes));
    }
    named.push_back({file->name(), file->hash()});
  }
  if (!named.empty()) frame.columns.set(label_files, std::move(named));
}

const SideFiles& Encode::files_of(const Sink& sink) const {
  std::call_once(sink.once,
                 [&] { sink.files.emplace(context_.output_folder, sink.entry->outputs.front(), sink.entry->suffix); });
  return *sink.files;
}

template StageEntry stage_entry<Encode>();

}  // namespace millrace
