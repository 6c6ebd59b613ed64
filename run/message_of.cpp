#include "run/message_of.hpp"

#include <new>

namespace millrace {

bool is_out_of_threads(const std::system_error& error) {
  return error.code() == std::errc::resource_unavailable_try_again;
}

std::string message_of(const std::exception& error) {
  // what() of these errors does not say what the user can do.
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "memory ran out; raise the limit (ulimit -v, or that of the container), or lower --set gate.memory, "
           "gate.slab and models.budget. Then run the same command again to resume";
  }
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && is_out_of_threads(*system)) {
    return "the system allows no more threads; raise the limit (ulimit -u, or pids.max of the container). Then run "
           "the same command again to resume";
  }
  return error.what();
}

}  // namespace millrace
