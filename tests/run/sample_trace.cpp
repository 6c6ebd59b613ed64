// Writes a trace that is cut in the middle, for perfetto_test.py: run_sample_trace FILE.json
//
// A lane and two workers record all kinds of events. The recorder is small, so it keeps the first and last thousands.
#include <pthread.h>

#include <barrier>
#include <cstdio>
#include <string>
#include <thread>

#include "run/trace_file.hpp"

namespace {

using namespace millrace;
using Kind = TraceEvent::Kind;

constexpr std::int64_t batches = 10'000, frames = 4, step_ns = 50'000;
const std::string decode = "decode", lane = "lane", segment = "segment", encoder = "encoder";

// The threads keep pace, as in a run. Otherwise the span of time that is cut would be nearly everything.
std::barrier pace(3);

template <class Record>
std::jthread on_thread(const char* name, Record record) {
  return std::jthread([name, record] {
    pthread_setname_np(pthread_self(), name);
    for (std::int64_t i = 0; i < batches; ++i) {
      record(i, step_ns * i);
      if (i % 100 == 0) pace.arrive_and_wait();
    }
  });
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fputs("usage: run_sample_trace FILE.json\n", stderr);
    return 2;
  }
  TraceRecorder recorder(32);
  {
    const auto worker = [&](std::int64_t i, std::int64_t at_ns) {
      for (std::int64_t frame = 0; frame < frames; ++frame)
        recorder.add(
            {Kind::work, 0, &decode, frames * i + frame, at_ns + 10'000 * frame, at_ns + 10'000 * frame + 9'000},
            "a.jpg");
      recorder.add({Kind::queue, 0, &lane, i % 3, at_ns + 40'000, at_ns + 40'000});
      if (i % 100 == 0)
        recorder.add({Kind::failure, 0, nullptr, 0, at_ns, at_ns + 41'000},
                     R"({"id": 3, "path": "</script>.jpg", "stage": "decode", "reason": "empty"})");
    };
    const auto first = on_thread("worker", worker), second = on_thread("worker", worker);
    const auto lanes = on_thread("lane 0", [&](std::int64_t i, std::int64_t at_ns) {
      recorder.add({Kind::wait, frames, &lane, i, at_ns, at_ns + 45'000});  // waits of several batches overlap
      recorder.add({Kind::call, frames, &encoder, 20'000, at_ns, at_ns + 20'000});
      recorder.add({Kind::work, frames, &segment, i, at_ns, at_ns + 30'000});
      recorder.add({Kind::committed, 0, nullptr, frames * i, at_ns + 42'000, at_ns + 42'000});
    });
  }
  const std::string note =
      write_trace(argv[1], recorder, {"run-1", "2026-11-27T12:00:00Z", "millrace", 0, 0, step_ns * batches});
  std::puts(note.c_str());
}
