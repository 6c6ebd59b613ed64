#include "run/committer.hpp"

#include <utility>

#include "base/trace_recorder.hpp"
#include "io/files/json_writer.hpp"
#include "io/files/source_names.hpp"
#include "io/results/json_line.hpp"
#include "io/results/run_folder.hpp"
#include "io/results/segments.hpp"
#include "pipeline/clock.hpp"
#include "run/job.hpp"
#include "stages/detect.hpp"

namespace millrace {
namespace {

constexpr std::int64_t max_messages = 20;  // messages about failed pictures; more would hide other messages

/// A line of errors.jsonl.
std::string error_line(const Frame& frame) {
  JsonWriter json;
  json.begin_object().key("id").value(frame.item.id);
  write_path("path", frame.item.path, json);
  json.key("stage").value(frame.failure->stage).key("reason").value(to_string(frame.failure->reason));
  json.key("detail").value(frame.failure->detail).end_object();
  return json.take();
}

}  // namespace

Committer::Committer(SegmentStore& store, RunFolder& folder, JobListener& listener, const Clock& clock,
                     TraceRecorder* recorder, const std::vector<PlannedView>& views)
    : store_(store), folder_(folder), listener_(listener), clock_(clock), recorder_(recorder) {
  for (const PlannedView& view : views) views_.push_back({view.name});
}

void Committer::commit(const Batch& batch, std::vector<std::string> texts) {
  std::vector<Line> lines;
  lines.reserve(texts.size());
  ViewCounts counts;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Frame& frame = *batch.frames[i];
    const Detections* found = frame.columns.find(detections);
    written_bytes_ += static_cast<std::int64_t>(texts[i].size()) + 1;  // with the newline
    Line line{frame.item.id, std::move(texts[i]), !frame.failed(), Reason::internal, 0};
    if (frame.failed()) {
      line.reason = frame.failure->reason;
      fail(frame);
      ++counts.failed;
    } else if (found != nullptr) {
      line.objects = static_cast<int>(found->list.size());
    }
    ++counts.pictures;
    counts.objects += line.objects;
    lines.push_back(std::move(line));
  }
  store_.append(batch.position().segment, batch.position().segment_batch, lines);
  const std::lock_guard lock(mutex_);
  ViewCounts& view = views_[static_cast<std::size_t>(batch.view())];
  view.pictures += counts.pictures;
  view.failed += counts.failed;
  view.objects += counts.objects;
}

void Committer::fail(const Frame& frame) {
  const std::string error = error_line(frame);
  folder_.add_error(error);
  listener_.failed(error);
  if (recorder_ != nullptr) {
    recorder_->add({.kind = TraceEvent::Kind::failure, .begun_ns = frame.failed_ns, .ended_ns = clock_.now_ns()},
                   error);
  }
  tell(frame);
}

void Committer::tell(const Frame& frame) {
  if (failed_ == max_messages) {
    listener_.warn("more pictures failed: " + display_name(folder_.path()) + "/errors.jsonl lists all of them");
  } else if (failed_ < max_messages) {
    listener_.warn(display_name(frame.item.path) + ": " + std::string(to_string(frame.failure->reason)) + ": " +
                   display_name(frame.failure->detail));
  }
  ++failed_;
}

}  // namespace millrace
