#pragma once

#include <memory>

#include "gpu/stream.hpp"

namespace millrace {

/// Makes the stream under test: a fake one (make_fake_stream.cpp), or one on a GPU (cuda_main.cpp).
std::unique_ptr<Stream> make_stream();

}  // namespace millrace
