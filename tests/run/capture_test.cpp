#include "run/capture.hpp"

#include <doctest/doctest.h>

#include <string>

namespace millrace {
namespace {

/// The calls of a profiler, among the numbers of frames that enter one by one.
/// Frames are committed in batches of `batch`, when `behind` more frames have entered.
std::string events(CaptureSpan span, int frames, int batch, int behind) {
  std::string said;
  {
    Capture capture(span, {[&] { said += " start"; }, [&] { said += " stop"; }});
    for (int i = 0; i < frames + behind; ++i) {
      if (i < frames) {
        said += " " + std::to_string(i);
        capture.enter();
      }
      if (i >= behind && (i - behind) % batch == batch - 1) capture.commit(batch);
    }
  }
  return said;
}

TEST_CASE("the profiler is started before the first frame of a span and stopped when its last is committed") {
  CHECK(events({2, 4}, 6, 1, 1) == " 0 1 2 start 3 4 stop 5");
  CHECK(events({0, 4}, 4, 2, 0) == " 0 start 1 2 3 stop");
  CHECK(events({1, 2}, 6, 3, 0) ==
        " 0 1 start 2 stop 3 4 5");  // the span ends inside a batch, so the profiler stops at its end
}

TEST_CASE("a run that ends inside a span stops the profiler, once") {
  CHECK(events({1, 100}, 3, 1, 0) == " 0 1 start 2 stop");
  CHECK(events({5, 9}, 3, 1, 0) == " 0 1 2");  // it never began
  CHECK(events({}, 3, 1, 0) == " 0 1 2");
}

}  // namespace
}  // namespace millrace
