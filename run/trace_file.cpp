#include "run/trace_file.hpp"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "base/cpu.hpp"
#include "base/text.hpp"
#include "io/files/files.hpp"
#include "io/files/json_writer.hpp"
#include "io/files/source_names.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

constexpr int process = 1;  // number of the only process
constexpr int marks = 1;    // number of the track of failed pictures and of the cut; those of the threads follow
constexpr std::size_t block = 1 << 20;

struct Shown {
  const TraceEvent* event;
  std::string_view text;
  std::size_t thread;
};

std::vector<Shown> by_begin(const TraceRecorder& recorder) {
  std::vector<Shown> all;
  recorder.visit([&](const TraceEvent& event, std::string_view text, std::size_t thread) {
    all.push_back({&event, text, thread});
  });
  std::ranges::stable_sort(all, {}, [](const Shown& one) { return one.event->begun_ns; });
  return all;
}

/// A thread's place among the tracks: in the order of the flow, then by its number.
std::pair<std::size_t, int> place(const std::string& name) {
  constexpr std::string_view kinds[] = {"source", "read", "worker", "lane", "commit"};
  const auto blank = name.find(' ');
  const auto kind = std::ranges::find(kinds, std::string_view(name).substr(0, blank));
  return {static_cast<std::size_t>(kind - std::begin(kinds)),
          blank == std::string::npos ? 0 : std::atoi(name.c_str() + blank)};
}

/// A thread as the trace shows it.
struct Track {
  std::string name;
  int number = 0;
};

/// One for each thread of the recorder. All workers have the same name, so they get numbers.
std::vector<Track> tracks_of(const std::vector<std::string>& threads) {
  std::vector<Track> tracks;
  int workers = 0;
  for (const auto& name : threads)
    tracks.push_back({name == "worker" ? name + " " + std::to_string(workers++) : name, 0});
  std::vector<Track*> sorted;
  for (auto& track : tracks) sorted.push_back(&track);
  std::ranges::stable_sort(sorted, {}, [](const Track* track) { return place(track->name); });
  int number = marks;
  for (auto* track : sorted) track->number = ++number;
  return tracks;
}

class Writer {
 public:
  Writer(AtomicFile& file, const TraceFacts& facts) : file_(file), facts_(facts) {}

  void head(const TraceRecorder::Cut& cut) {
    JsonWriter json;
    json.begin_object().key("program").value(facts_.tool).key("run").value(facts_.run);
    json.key("started").value(facts_.started).key("cpu").value(cpu_name()).key("instructions").value(cpu_features());
    json.key("events_left_out").value(cut.events).end_object();
    text_ = "{\"displayTimeUnit\": \"ms\", \"otherData\": " + json.take() + ", \"traceEvents\": [\n";
    name_process("process_name", "name", "millrace");
    name_process("process_labels", "labels", facts_.run + ", " + facts_.tool + ", " + cpu_name());
  }

  void track(int number, const std::string& name) {
    for (const bool sort : {false, true}) {
      JsonWriter json = begin("M", sort ? "thread_sort_index" : "thread_name");
      json.key("tid").value(number).key("args").begin_object();
      if (sort) {
        json.key("sort_index").value(number);
      } else {
        json.key("name").value(name);
      }
      json.end_object();
      end(json);
    }
  }

  void work(const TraceEvent& event, std::string_view file, int track) {
    JsonWriter json = begin("X", *event.name, event.begun_ns);
    json.key("dur").rounded(static_cast<double>(event.ended_ns - event.begun_ns) / 1e3, 3).key("tid").value(track);
    json.key("args").begin_object();
    if (event.number >= 0) json.key(event.frames == 0 ? "frame" : "batch").value(event.number);
    if (event.frames > 0) json.key("frames").value(event.frames);
    if (!file.empty()) json.key("file").value(file);
    json.end_object();
    end(json);
  }

  void call(const TraceEvent& event, int track) {
    JsonWriter json = begin("X", "GPU: " + *event.name, event.begun_ns);
    json.key("dur").rounded(static_cast<double>(event.ended_ns - event.begun_ns) / 1e3, 3).key("tid").value(track);
    json.key("args").begin_object().key("rows").value(event.frames);
    json.key("alone_ms").rounded(static_cast<double>(event.number) / 1e6, 6).end_object();
    end(json);
  }

  void wait(const TraceEvent& event) {
    JsonWriter arguments;
    arguments.begin_object().key("batch").value(event.number).key("frames").value(event.frames).end_object();
    // Waits of different batches overlap, so each needs a name of its own.
    span("queue: " + *event.name, *event.name + " " + std::to_string(event.number), event.begun_ns, event.ended_ns,
         arguments.take());
  }

  /// A slice apart from the threads. No other slice of this name may have this id.
  void span(const std::string& name, const std::string& id, std::int64_t begun_ns, std::int64_t ended_ns,
            const std::string& arguments = "{}") {
    for (const bool begins : {true, false}) {
      JsonWriter json = begin(begins ? "b" : "e", name, begins ? begun_ns : ended_ns);
      json.key("cat")
          .value("span")
          .key("id2")
          .begin_object()
          .key("local")
          .value(id)
          .end_object();  // local: of this process
      if (begins) json.key("args").verbatim(arguments);
      end(json);
    }
  }

  void counter(const std::string& name, const char* unit, const TraceEvent& event) {
    JsonWriter json = begin("C", name, event.ended_ns);
    json.key("args").begin_object().key(unit).value(event.number).end_object();
    end(json);
  }

  void failure(const TraceEvent& event, std::string_view what) {
    JsonWriter json = begin("i", "failed picture", event.begun_ns);
    json.key("s").value("t").key("tid").value(marks).key("args").verbatim(what);
    end(json);
  }

  void cut(const TraceRecorder::Cut& cut) {
    if (cut.events == 0) return;
    const std::string name = "cut: " + count_of(cut.events, "event") + " left out";
    JsonWriter arguments;
    arguments.begin_object().key("events").value(cut.events).end_object();
    JsonWriter json = begin("i", name, cut.begun_ns);
    json.key("s").value("t").key("tid").value(marks).key("args").verbatim(arguments.text());
    end(json);
    span(name, "cut", cut.begun_ns, cut.ended_ns, arguments.take());
  }

  void tail() {
    text_ += "\n]}\n";
    file_.write(text_);
  }

 private:
  JsonWriter begin(const char* phase, const std::string& name) {
    JsonWriter json;
    json.begin_object().key("ph").value(phase).key("name").value(name).key("pid").value(process);
    return json;
  }
  JsonWriter begin(const char* phase, const std::string& name, std::int64_t time_ns) {
    JsonWriter json = begin(phase, name);
    json.key("ts").rounded(static_cast<double>(time_ns - facts_.zero_ns) / 1e3, 3);
    return json;
  }
  void end(JsonWriter& json) {
    if (!first_) text_ += ",\n";
    first_ = false;
    text_ += json.end_object().take();
    if (text_.size() < block) return;
    file_.write(text_);
    text_.clear();
  }
  void name_process(const char* what, const char* key, const std::string& value) {
    JsonWriter json = begin("M", what);
    json.key("args").begin_object().key(key).value(value).end_object();
    end(json);
  }

  AtomicFile& file_;
  const TraceFacts& facts_;
  std::string text_;
  bool first_ = true;
};

struct Place {
  std::string folder, name;
};

Place place_of(const std::string& file) {
  const std::filesystem::path path(file);
  const std::string folder = path.parent_path().string();
  return {folder.empty() ? "." : folder, path.filename().string()};
}

}  // namespace

void check_trace_name(const std::string& file) {
  // A recipe or a picture that follows --trace by mistake must not be replaced.
  if (!file.ends_with(".json"))
    throw UsageError("trace.file is '" + display_name(file) + "'; its name must end in .json, such as trace.json");
  std::error_code unknown;
  const auto there = std::filesystem::status(file, unknown);
  if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there)) {
    throw UsageError("trace.file is '" + display_name(file) + "', which is " +
                     (std::filesystem::is_directory(there) ? "a folder" : "no regular file") + "; name another file");
  }
}

void check_trace_place(const std::string& file) {
  const auto [folder, name] = place_of(file);
  const AtomicFile trial(folder, name);
}

std::string write_trace(const std::string& file, const TraceRecorder& recorder, const TraceFacts& facts) {
  const auto [folder, name] = place_of(file);
  AtomicFile written(folder, name);
  Writer writer(written, facts);
  const auto cut = recorder.cut();
  writer.head(cut);
  writer.track(marks, "marks");
  const auto tracks = tracks_of(recorder.threads());
  for (const auto& track : tracks) writer.track(track.number, track.name);
  if (facts.ended_ns > facts.begun_ns) {
    writer.span("load and warm-up", "load", facts.zero_ns, facts.begun_ns);
    writer.span("run", "run", facts.begun_ns, facts.ended_ns);
  }
  writer.cut(cut);
  const auto events = by_begin(recorder);
  for (const auto& [event, text, thread] : events) {
    switch (event->kind) {
      case TraceEvent::Kind::work:
        writer.work(*event, text, tracks[thread].number);
        break;
      case TraceEvent::Kind::call:
        writer.call(*event, tracks[thread].number);
        break;
      case TraceEvent::Kind::wait:
        writer.wait(*event);
        break;
      case TraceEvent::Kind::queue:
        writer.counter("queue: " + *event->name, "items", *event);
        break;
      case TraceEvent::Kind::committed:
        writer.counter("committed", "pictures", *event);
        break;
      case TraceEvent::Kind::failure:
        writer.failure(*event, text);
        break;
    }
  }
  writer.tail();
  written.commit();
  std::string note = "the trace is in " + display_name(file) + " (" +
                     count_of(static_cast<std::int64_t>(events.size()), "event") + "): open it in ui.perfetto.dev";
  if (cut.events > 0) note += "; " + grouped(cut.events) + " more in the middle of the run are left out";
  return note;
}

}  // namespace millrace
