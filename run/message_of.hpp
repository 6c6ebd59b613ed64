#pragma once

#include <exception>
#include <string>
#include <system_error>

namespace millrace {

/// The message for people: what(), or a sentence of our own if what() of the standard library says too little.
std::string message_of(const std::exception& error);

/// Whether the system refused to start a thread. what() says only "Resource temporarily unavailable".
bool is_out_of_threads(const std::system_error& error);

}  // namespace millrace
