#pragma once

#include <exception>
#include <string>
#include <system_error>

namespace millrace {

/// What to tell a person about it: its own words, and a sentence where those of the standard library say too little.
std::string message_of(const std::exception& error);

/// Whether the system refused a thread: its own words are "Resource temporarily unavailable".
bool is_out_of_threads(const std::system_error& error);

}  // namespace millrace
