#pragma once

#include <atomic>
#include <cstdint>

namespace millrace {

/// The windows of a run at one moment. One picture may have so many that it takes an hour.
struct WindowProgress {
  std::int64_t pictures = 0;  ///< that have come to the stage with windows in this attempt, failed ones included
  std::int64_t done = 0;      ///< windows that this attempt has computed
  std::int64_t in_work = 0;   ///< all windows of the pictures that are computed now
  std::int64_t left = 0;      ///< those of them that are not computed yet
  std::int64_t open = 0;      ///< pictures that are computed now
};

/// Counts windows for the progress of a run. Any thread may call its functions.
class WindowMeter {
 public:
  WindowProgress now() const;

 private:
  friend class WindowsInWork;
  std::atomic<std::int64_t> pictures_{0}, done_{0}, in_work_{0}, left_{0}, open_{0};
};

/// The windows of a batch. When it is destroyed, also by an exception, none of them counts as open any more.
class WindowsInWork {
 public:
  explicit WindowsInWork(WindowMeter& meter) : meter_(meter) {}
  WindowsInWork(const WindowsInWork&) = delete;
  WindowsInWork& operator=(const WindowsInWork&) = delete;
  ~WindowsInWork();

  void add_picture(bool counted_before);
  void add(std::int64_t windows);
  void done(std::int64_t windows);

 private:
  WindowMeter& meter_;
  std::int64_t all_ = 0, done_ = 0, open_ = 0;
};

}  // namespace millrace
