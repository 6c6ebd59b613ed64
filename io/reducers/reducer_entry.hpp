#pragma once

#include "io/reducers/reducer.hpp"

namespace millrace {

/// Only the source of R includes this, and says, at its end,
///
///     template ReducerEntry reducer_entry<R>();
template <class R>
ReducerEntry reducer_entry() {
  return R::entry();
}

}  // namespace millrace
