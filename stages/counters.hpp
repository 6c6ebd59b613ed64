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

namespace millrace {

/// What somebody counts. Who counts declares it in its header, and a stage lists it in its info():
///
///     inline constexpr CounterInfo detector_calls{"detector_calls"};
///
/// The report then shows it, also where it is 0 and where the recipe lacks the stage.
struct CounterInfo {
  std::string_view name;  ///< its key in `calls` of report.json
  /// What is said of pictures that were counted by name: "2 pictures, <of_many>: a.jpg, b.jpg". Empty: no note.
  std::string_view of_many{}, of_one{};
};

using CounterInfos = std::vector<const CounterInfo*>;

/// One count. All functions may be called from any thread.
class Counter {
 public:
  void operator++() { count_.fetch_add(1, std::memory_order_relaxed); }
  void operator+=(std::int64_t more) { count_.fetch_add(more, std::memory_order_relaxed); }
  /// Counts a picture, and keeps the first few names for the note.
  void add(std::string_view path);
  std::int64_t count() const { return count_.load(std::memory_order_relaxed); }
  Tally named() const;

 private:
  std::atomic<std::int64_t> count_{0};
  mutable std::mutex mutex_;  // guards named_
  Tally named_;
};

/// The counters of one run. What they are is fixed when they are made, so finding one takes no lock.
class Counters {
 public:
  /// A counter may be listed more than once. Throws std::logic_error when two have one name.
  explicit Counters(const CounterInfos& infos);

  /// Throws std::logic_error for a counter that was not listed.
  Counter& operator[](const CounterInfo& info);
  const Counter& operator[](const CounterInfo& info) const;

  /// All by name, in the order in which they were listed.
  std::vector<std::pair<std::string, std::int64_t>> counts() const;
  /// A sentence for each counter that names pictures and has some.
  std::vector<std::string> notes() const;

  std::atomic<std::int64_t> bytes_read_again{0};  ///< by stages, beyond what the reader read
  std::atomic<std::int64_t> side_file_bytes{0};   ///< written beside the segments

 private:
  struct Entry {
    explicit Entry(const CounterInfo& what) : info(what) {}
    const CounterInfo& info;
    Counter counter{};
  };
  std::deque<Entry> entries_;
};

}  // namespace millrace
