#pragma once

#include "stages/sinks/sink.hpp"

namespace millrace {

/// Only the source of S includes this, and says, at its end,
///
///     template SinkEntry sink_entry<S>();
template <class S>
SinkEntry sink_entry() {
  return S::entry();
}

}  // namespace millrace
