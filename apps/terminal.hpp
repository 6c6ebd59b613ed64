#pragma once

#include <string>

namespace millrace {

/// Columns of the terminal behind a descriptor; 100 where there is none.
int terminal_columns(int descriptor);

/// Whether colour is wanted there: a terminal, no NO_COLOR, TERM not dumb.
bool wants_colour(int descriptor);

/// Opens /dev/null for each of stdin, stdout and stderr that is closed: else the next file opened took its number, and
/// messages went into it.
void fill_closed_descriptors();

/// A line to stderr: "millrace: text".
void say(const std::string& text);

}  // namespace millrace
