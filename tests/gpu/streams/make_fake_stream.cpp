#include "gpu/streams/fake_stream.hpp"
#include "tests/gpu/streams/make_stream.hpp"

std::unique_ptr<millrace::Stream> millrace::make_stream() { return std::make_unique<FakeStream>(); }
