#include "apps/terminal.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace millrace {

int terminal_columns(int descriptor) {
  winsize size{};
  return ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 100;
}

bool wants_colour(int descriptor) {
  const char* terminal = std::getenv("TERM");
  return isatty(descriptor) != 0 && std::getenv("NO_COLOR") == nullptr && terminal != nullptr &&
         std::string(terminal) != "dumb";
}

void say(const std::string& text) { std::fprintf(stderr, "millrace: %s\n", text.c_str()); }

}  // namespace millrace
