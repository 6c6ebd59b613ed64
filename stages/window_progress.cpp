#include "stages/window_progress.hpp"

#include <algorithm>

namespace millrace {

// The counts change between the reads, so `left` may have windows that `in_work` lacks.
WindowProgress WindowMeter::now() const {
  const std::int64_t left = left_, in_work = in_work_;
  return {pictures_, done_, in_work, std::min(left, in_work), open_};
}

WindowsInWork::~WindowsInWork() {
  meter_.left_ -= all_ - done_;
  meter_.in_work_ -= all_;
  meter_.open_ -= open_;
}

void WindowsInWork::add_picture(bool counted_before) {
  ++open_;
  ++meter_.open_;
  if (!counted_before) ++meter_.pictures_;
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
