#pragma once

#include <memory>

#include "gpu/stream.hpp"

namespace millrace {

/// The stream that a test program is about: a fake one, or that of a GPU.
std::unique_ptr<Stream> make_stream();

}  // namespace millrace
