#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <cstdio>

#include "gpu/streams/cuda_stream.hpp"
#include "tests/gpu/streams/make_stream.hpp"

std::unique_ptr<millrace::Stream> millrace::make_stream() { return make_cuda_stream(0, "test"); }

int main(int argc, char** argv) {
  if (millrace::cuda_device_count() == 0) {
    std::puts("skipped: no GPU");
    return 77;
  }
  doctest::Context context(argc, argv);
  return context.run();
}
