#include "run/message_of.hpp"

#include <new>

namespace millrace {

bool is_out_of_threads(const std::system_error& error) {
  return error.code() == std::errc::resource_unavailable_try_again;
}

std::string message_of(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return "the memory is used up; give the program more (ulimit -v, the container's limit), or lower --set "
           "gate.memory, "
           "gate.slab and models.budget; the same command goes on from here";
  }
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && is_out_of_threads(*system)) {
    return "the system gives the program no more threads; raise the limit (ulimit -u, or pids.max of the container); "
           "the "
           "same command goes on from here";
  }
  return error.what();
}

}  // namespace millrace
