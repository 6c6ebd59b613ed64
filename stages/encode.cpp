#include "stages/encode.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "io/files/files.hpp"
#include "io/results/journal.hpp"
#include "io/results/json_line.hpp"
#include "io/sinks/image_write.hpp"
#include "io/sinks/label_map.hpp"
#include "io/sinks/overlay_opener.hpp"
#include "stages/chain.hpp"
#include "stages/decode.hpp"
#include "stages/stage_entry.hpp"

namespace millrace {
namespace {

constexpr int overlay_quality = 90;
constexpr int longest_jpeg_side = 65'500;
// A picture that was reduced for the models is decoded again for its overlay, up to this raster: 8000 x 6000 fits.
constexpr std::int64_t overlay_bytes = std::int64_t{256} << 20;

std::shared_ptr<std::uint8_t> new_raster(std::size_t bytes) {
  return {new std::uint8_t[bytes], [](const std::uint8_t* data) { delete[] data; }};
}

// Objects as sinks draw them.
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
  v.option("format", format, "beside the segments: coco, overlay, png (16-bit label maps)");
}

bool Encode::Options::has(const char* kind) const {
  return std::find(format.begin(), format.end(), kind) != format.end();
}

StageInfo Encode::info(const Options& options) {
  const std::vector<std::string> known{"coco", "overlay", "png"};
  for (const auto& kind : options.format) {
    if (std::find(known.begin(), known.end(), kind) == known.end()) {
      throw UsageError("encode.format knows coco, overlay and png, not '" + kind + "'");
    }
  }
  StageInfo info{name, Section::batch, "segment lines and side files", {}, {&segment_line}, {&detections, &masks},
                 {&overlays_left_out}};
  if (options.has("overlay")) info.reads.push_back(&pixels);
  return info;
}

Encode::Encode(const Options& options, const StageContext& context) : context_(context) {
  overlays_.wanted = options.has("overlay");
  if (overlays_.wanted) overlay_drawing_ = open_overlay_drawing();
  label_maps_.wanted = options.has("png");
}

void Encode::run(Batch& batch) const {
  for (const auto& frame : batch.frames) {
    write_side_files(*frame);
    std::string line = finish_segment_line(*frame, context_.views);
    frame->columns.set(segment_line, std::move(line));
  }
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
               "its line of the segment has " + std::to_string(line.size()) +
                   " bytes, rows of side columns included; " + std::to_string(Journal::max_line_bytes) +
                   " is the limit");
  } catch (const std::domain_error& error) {
    frame.fail(Encode::name, Reason::non_finite, error.what());
  }
  return make_segment_line(frame, views);
}

PixelBuffer Encode::overlay_raster(const Frame& frame, PictureInfo& info) const {
  if (info.reduction == 1) {
    const PixelBuffer& original = frame.columns.get(pixels);  // others may read it too: the overlay is drawn on a copy
    PixelBuffer copy{original.width, original.height, new_raster(static_cast<std::size_t>(info.pixel_bytes))};
    std::memcpy(copy.data.get(), original.data.get(), static_cast<std::size_t>(info.pixel_bytes));
    return copy;
  }
  DecodeLimits limits = context_.decode_limits;
  limits.slab_bytes = std::max(limits.slab_bytes, overlay_bytes);
  const FileBytes file = read_file(open_path(context_.input_root, frame.item), {});
  context_.counters.bytes_read_again += static_cast<std::int64_t>(file.size);
  info = probe(file.span(), limits);
  return decode(file.span(), info, limits, new_raster).pixels;
}

void Encode::write_side_files(Frame& frame) const {
  if (frame.failed()) return;
  try {
    std::vector<std::uint8_t> map;
    if (label_maps_.wanted) map = encode_label_map(frame.info.width, frame.info.height, objects_of(frame));
    std::vector<std::uint8_t> overlay;
    if (overlays_.wanted) overlay = encode_overlay(frame);
    // Only now, so that a picture that fails leaves neither.
    if (!map.empty()) write_side_file(label_maps_, "labels", ".png", frame.item, map);
    if (!overlay.empty()) write_side_file(overlays_, "overlay", ".jpg", frame.item, overlay);
  } catch (const StorageError&) {
    throw;  // of the output; a picture that cannot be read again throws PictureError
  } catch (...) {
    fail_frame(frame, name, std::current_exception());
  }
}

// Nothing for a picture that no JPEG can hold.
std::vector<std::uint8_t> Encode::encode_overlay(const Frame& frame) const {
  PictureInfo info = frame.info;
  std::unique_lock<std::mutex> one_at_a_time(large_, std::defer_lock);
  if (info.reduction > 1) one_at_a_time.lock();
  const PixelBuffer raster = overlay_raster(frame, info);
  if (std::max(raster.width, raster.height) > longest_jpeg_side) {
    ++context_.counters[overlays_left_out];
    return {};
  }
  overlay_drawing_(raster, info, objects_of(frame));
  return encode_jpeg(raster.data.get(), raster.width, raster.height, overlay_quality);
}

void Encode::write_side_file(const Kind& kind, const char* folder, const char* suffix, const Item& item,
                             std::span<const std::uint8_t> content) const {
  std::call_once(kind.once, [&] { kind.files.emplace(context_.output_folder, folder, suffix); });
  kind.files->write(item.id, item.path, content);
  context_.counters.side_file_bytes += static_cast<std::int64_t>(content.size());
}

template StageEntry stage_entry<Encode>();

}  // namespace millrace
