#include "stages/window_progress.hpp"

#include <algorithm>

namespace millrace {

// The counts change between the reads, so `left` may have windows that `in_work` lacks.
WindowProgress WindowMeter::now() const {
  const std::int64_t left = left_, in_work = in_work_;
  return {pictures_, done_, in_work, std::min(left, in_work)};
}

WindowsInWork::~WindowsInWork() {
  meter_.left_ -= all_ - done_;
  meter_.in_work_ -= all_;
}

void WindowsInWork::add(std::int64_t windows) {
  all_ += windows;
  meter_.in_work_ += windows;
  meter_.left_ += windows;
}

void WindowsInWork::done(std::int64_t windows) {
  done_ += windows;
  meter_.done_ += windows;
  meter_.left_ -= windows;
}

}  // namespace millrace
