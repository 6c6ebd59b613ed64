#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "gpu/streams/cuda_stream.hpp"
#include "tests/gpu/streams/make_stream.hpp"

std::unique_ptr<millrace::Stream> millrace::make_stream() { return make_cuda_stream(0, "test"); }

TEST_CASE("a GPU that idles while the host queues work is timed without the gaps between launches") {
  using std::chrono::milliseconds;
  const auto stream = millrace::make_stream();
  const auto memory = stream->allocate(1 << 20);
  const auto work = [&] {
    stream->zero(memory.get(), 1 << 20);
    std::this_thread::sleep_for(milliseconds(50));
    stream->zero(memory.get(), 1 << 20);
  };
  CHECK(stream->time(work, 0) >= 0.04);
  CHECK(stream->time(work, 0.5) < 0.04);
}

int main(int argc, char** argv) {
  if (millrace::cuda_device_count() == 0) {
    std::puts("skipped: no GPU");
    return 77;
  }
  doctest::Context context(argc, argv);
  return context.run();
}
