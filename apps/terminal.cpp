#include "apps/terminal.hpp"

#include <fcntl.h>
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

void fill_closed_descriptors() {
  // open() returns the lowest free number, so the first number above stderr shows that no gap is left.
  for (;;) {
    const int descriptor = ::open("/dev/null", O_RDWR);
    if (descriptor > STDERR_FILENO) ::close(descriptor);
    if (descriptor < 0 || descriptor > STDERR_FILENO) return;
  }
}

void say(const std::string& text) {
  // The progress line has no newline: wipe it. Progress draws it again within half a second.
  const char* wipe = isatty(STDERR_FILENO) != 0 ? "\r\033[K" : "";
  std::fprintf(stderr, "%smillrace: %s\n", wipe, text.c_str());
}

}  // namespace millrace
