#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// Something that a trace shows. Times are those of the pipeline's clock.
struct TraceEvent {
  enum class Kind : std::uint8_t {
    work,       ///< the thread worked on frame or batch `number`; the text is the file of a frame
    call,       ///< it called the model `name` with `frames` rows: alone on its device, that takes `number` ns
    wait,       ///< batch `number` waited for a thread that serves `name`
    queue,      ///< from `ended_ns` on, `number` items wait for `name`
    committed,  ///< from `ended_ns` on, `number` frames are committed
    failure     ///< a picture failed at `begun_ns`; the text is a JSON object that says which, where and why
  };
  Kind kind = Kind::work;
  std::uint32_t frames = 0;           ///< of the batch; 0 for a single frame
  const std::string* name = nullptr;  ///< of the stage, or of the part of the model
  std::int64_t number = 0;
  std::int64_t begun_ns = 0, ended_ns = 0;
};

/// Keeps the events of a run, from any thread, in memory of bounded size.
///
/// It keeps the first and the last events of a long run. Between them it cuts a span of time, the same on all threads.
/// Each thread writes into a chunk of its own, and takes a lock only when the chunk is full.
/// The names in events must live until the last visit().
class TraceRecorder {
 public:
  static constexpr std::size_t chunk_events = 1024;
  static constexpr std::size_t chunk_text = 64 << 10;  ///< a chunk with so many bytes of text is full, too

  /// Keeps `chunks` full chunks: half of them are the first ones, half the last ones.
  /// In addition, each thread can have one chunk of either part that is not full.
  explicit TraceRecorder(std::size_t chunks = 512);
  TraceRecorder(const TraceRecorder&) = delete;
  TraceRecorder& operator=(const TraceRecorder&) = delete;
  ~TraceRecorder();

  /// Records an event of the calling thread. The events of a thread come in the order of `ended_ns`.
  /// If memory runs out, the event is cut.
  void add(const TraceEvent& event, std::string_view text = {}) noexcept;

  /// The span of time that is left out, with every event that ended in it.
  struct Cut {
    std::int64_t events = 0;
    std::int64_t begun_ns = 0, ended_ns = 0;  ///< `ended_ns` is excluded
  };
  using Visitor = std::function<void(const TraceEvent&, std::string_view text, std::size_t thread)>;

  // Call these while no thread adds events.

  /// The names of the threads that have recorded an event, in the order of their first one.
  [[nodiscard]] std::vector<std::string> threads() const;
  [[nodiscard]] Cut cut() const;
  /// Calls `visit` for each event outside of the cut, with the number of its thread in threads().
  /// The events of a thread come in the order in which it recorded them.
  void visit(const Visitor& visit) const;

 private:
  struct Chunk;
  struct Writer;
  Writer& writer_of_this_thread();
  void change_chunk(Writer& writer);
  void lose(std::int64_t events, std::int64_t begun_ns, std::int64_t ended_ns) noexcept;
  [[nodiscard]] std::vector<const Chunk*> chunks() const;

  const std::size_t half_;
  std::atomic<bool> first_part_is_full_{false};
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Writer>> writers_;
  std::vector<std::unique_ptr<Chunk>> first_;
  std::deque<std::unique_ptr<Chunk>> last_;  // in the order in which they became full
  Cut lost_;
};

}  // namespace millrace
