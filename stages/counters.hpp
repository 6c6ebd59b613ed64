#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/input/scan.hpp"
#include "stages/window_progress.hpp"

namespace millrace {

/// Declares a counter. The header of the counting code declares it, and a stage lists it in its info():
///
///     inline constexpr CounterInfo detector_calls{"detector_calls"};
///
/// Every report then shows the counter, also at 0 and also if the recipe lacks the stage.
struct CounterInfo {
  std::string_view name;  ///< its key in `calls` of report.json
  /// Texts of a note in the report, for many pictures and for one: "2 pictures <of_many>: a.jpg, b.jpg".
  /// Empty: no note.
  std::string_view of_many{}, of_one{};
};

using CounterInfos = std::vector<const CounterInfo*>;

/// A counter. All functions may be called from any thread.
class Counter {
 public:
  void operator++() { count_.fetch_add(1, std::memory_order_relaxed); }
  void operator+=(std::int64_t more) { count_.fetch_add(more, std::memory_order_relaxed); }
  /// Counts a picture and keeps the first few names for the note.
  void add(std::string_view path);
  std::int64_t count() const { return count_.load(std::memory_order_relaxed); }
  /// The pictures that add() counted.
  Tally named() const;

 private:
  std::atomic<std::int64_t> count_{0};
  mutable std::mutex mutex_;  // guards named_
  Tally named_;
};

/// The counters of one run. The set is fixed at construction, so a lookup takes no lock.
class Counters {
 public:
  /// `infos` may list a counter several times. The listed objects must outlive this one.
  /// Throws std::logic_error if two different counters have the same name.
  explicit Counters(const CounterInfos& infos);

  /// Throws std::logic_error for a counter that `infos` did not list.
  Counter& operator[](const CounterInfo& info);
  const Counter& operator[](const CounterInfo& info) const;

  /// Name and value of each counter, in the order of `infos`.
  std::vector<std::pair<std::string, std::int64_t>> counts() const;
  /// A sentence for each counter that has texts for a note and has counted pictures by name.
  std::vector<std::string> notes() const;

  std::atomic<std::int64_t> bytes_read_again{0};  ///< read by stages, in addition to the bytes of the Reader
  std::atomic<std::int64_t> decoded_bytes{0};     ///< pixels of decoded pictures
  std::atomic<std::int64_t> side_file_bytes{0};   ///< written to files of sinks
  WindowMeter windows;

 private:
  struct Entry {
    explicit Entry(const CounterInfo& what) : info(what) {}
    const CounterInfo& info;
    Counter counter{};
  };
  std::deque<Entry> entries_;
};

}  // namespace millrace
