#include "base/trace_recorder.hpp"

#include <pthread.h>

#include <algorithm>
#include <array>
#include <utility>

namespace millrace {

struct TraceRecorder::Chunk {
  struct Stored {
    TraceEvent event;
    std::uint32_t text_begin, text_size;
  };

  Chunk() { events.reserve(chunk_events); }
  [[nodiscard]] bool full() const { return events.size() == chunk_events || text.size() >= chunk_text; }

  std::vector<Stored> events;
  std::string text;  // of all events, one after another
  std::size_t thread = 0;
};

struct TraceRecorder::Writer {
  Writer(const TraceRecorder* of, std::size_t number, const char* its_name)
      : recorder(of), thread(number), name(its_name) {}

  std::atomic<const TraceRecorder*> recorder;  // nullptr after its end
  const std::size_t thread;
  const std::string name;
  std::unique_ptr<Chunk> chunk{};
  bool in_first_part = true;
};

TraceRecorder::TraceRecorder(std::size_t chunks) : half_(chunks / 2) {}

TraceRecorder::~TraceRecorder() {
  for (const auto& writer : writers_) writer->recorder = nullptr;
}

TraceRecorder::Writer& TraceRecorder::writer_of_this_thread() {
  // Kept per thread, so that add() finds it without a lock. Threads of TBB outlive recorders.
  thread_local std::shared_ptr<Writer> current;
  if (current != nullptr && current->recorder.load(std::memory_order_relaxed) == this) return *current;
  std::array<char, 16> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  const std::lock_guard lock(mutex_);
  current = std::make_shared<Writer>(this, writers_.size(), name.data());
  writers_.push_back(current);
  return *current;
}

void TraceRecorder::add(const TraceEvent& event, std::string_view text) noexcept {
  try {
    Writer& writer = writer_of_this_thread();
    if (writer.chunk == nullptr || writer.chunk->full() ||
        (writer.in_first_part && first_part_is_full_.load(std::memory_order_relaxed))) {
      change_chunk(writer);
    }
    Chunk& chunk = *writer.chunk;
    const auto text_begin = static_cast<std::uint32_t>(chunk.text.size());
    chunk.text += text;
    chunk.events.push_back({event, text_begin, static_cast<std::uint32_t>(text.size())});
  } catch (const std::exception&) {  // no memory
    const std::lock_guard lock(mutex_);
    lose(1, event.ended_ns, event.ended_ns + 1);
  }
}

// Chunks are as long as their threads need to fill them. So all threads leave the first part at the same time:
// otherwise, the cut would have to begin before the oldest event of the slowest thread.
void TraceRecorder::change_chunk(Writer& writer) {
  const std::lock_guard lock(mutex_);
  if (writer.chunk != nullptr && writer.in_first_part) {
    first_.push_back(std::move(writer.chunk));
    if (first_.size() >= half_) first_part_is_full_ = true;
  } else if (writer.chunk != nullptr) {
    last_.push_back(std::move(writer.chunk));
  }
  if (last_.size() > half_) {
    writer.chunk = std::move(last_.front());
    last_.pop_front();
    if (const auto& events = writer.chunk->events; !events.empty())
      lose(static_cast<std::int64_t>(events.size()), events.front().event.ended_ns, events.back().event.ended_ns + 1);
    writer.chunk->events.clear();
    writer.chunk->text.clear();
  } else {
    writer.chunk = std::make_unique<Chunk>();
  }
  writer.chunk->thread = writer.thread;
  writer.in_first_part = !first_part_is_full_;
}

void TraceRecorder::lose(std::int64_t events, std::int64_t begun_ns, std::int64_t ended_ns) noexcept {
  lost_.begun_ns = lost_.events == 0 ? begun_ns : std::min(lost_.begun_ns, begun_ns);
  lost_.ended_ns = lost_.events == 0 ? ended_ns : std::max(lost_.ended_ns, ended_ns);
  lost_.events += events;
}

std::vector<std::string> TraceRecorder::threads() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> all;
  for (const auto& writer : writers_) all.push_back(writer->name);
  return all;
}

// A thread fills its chunks in turn, so those of one thread come in the order of time.
std::vector<const TraceRecorder::Chunk*> TraceRecorder::chunks() const {
  std::vector<const Chunk*> all;
  for (const auto& chunk : first_) all.push_back(chunk.get());
  for (const auto& chunk : last_) all.push_back(chunk.get());
  for (const auto& writer : writers_) {
    if (writer->chunk != nullptr) all.push_back(writer->chunk.get());
  }
  return all;
}

TraceRecorder::Cut TraceRecorder::cut() const {
  const std::lock_guard lock(mutex_);
  Cut cut = lost_;
  for (const Chunk* chunk : chunks()) {
    cut.events += std::ranges::count_if(chunk->events, [&](const Chunk::Stored& stored) {
      return stored.event.ended_ns >= cut.begun_ns && stored.event.ended_ns < cut.ended_ns;
    });
  }
  return cut;
}

void TraceRecorder::visit(const Visitor& visit) const {
  const std::lock_guard lock(mutex_);
  for (const Chunk* chunk : chunks()) {
    for (const auto& [event, text_begin, text_size] : chunk->events) {
      if (event.ended_ns >= lost_.begun_ns && event.ended_ns < lost_.ended_ns) continue;
      visit(event, std::string_view(chunk->text).substr(text_begin, text_size), chunk->thread);
    }
  }
}

}  // namespace millrace
