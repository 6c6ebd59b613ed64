#pragma once

#include <string>

namespace millrace {

/// Columns of the terminal behind a descriptor; 100 if it is not a terminal.
int terminal_columns(int descriptor);

/// True for a terminal, unless NO_COLOR is set or TERM is unset or "dumb".
bool wants_colour(int descriptor);

/// Opens /dev/null for each of stdin, stdout and stderr that is closed.
/// Otherwise the next file that is opened gets the free number, and messages end up in that file.
void fill_closed_descriptors();

/// Writes a line to stderr: "millrace: text".
void say(const std::string& text);

}  // namespace millrace
