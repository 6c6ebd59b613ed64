#pragma once

#include "stages/sinks/sink.hpp"

namespace millrace {

/// Only the source of S includes this header. At its end it instantiates the function:
///
///     template SinkEntry sink_entry<S>();
template <class S>
SinkEntry sink_entry() {
  return S::entry();
}

}  // namespace millrace
