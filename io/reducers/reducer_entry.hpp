#pragma once

#include "io/reducers/reducer.hpp"

namespace millrace {

/// Only the source of R includes this header. That source ends with
///
///     template ReducerEntry reducer_entry<R>();
template <class R>
ReducerEntry reducer_entry() {
  return R::entry();
}

}  // namespace millrace
