#pragma once

#include <string>

namespace millrace {

/// Columns of the terminal behind a descriptor; 100 where there is none.
int terminal_columns(int descriptor);

/// Whether colour is wanted there: a terminal, no NO_COLOR, TERM not dumb.
bool wants_colour(int descriptor);

/// A line to stderr: "millrace: text".
void say(const std::string& text);

}  // namespace millrace
