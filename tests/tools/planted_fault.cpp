// Deliberate faults, which the sanitizers must report. If they do not, the other tests of this build prove nothing.
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string_view>

int main(int argc, char** argv) {
  const std::string_view fault = argc == 2 ? argv[1] : "";
  volatile int one = argc - 1;
  if (fault == "leak") {
    std::printf("%p\n", std::malloc(100));
  } else if (fault == "freed") {
    int* volatile cell = new int(one);
    delete cell;
    std::printf("%d\n", *cell);
  } else if (fault == "undefined") {
    std::printf("%d\n", std::numeric_limits<int>::max() + one);
  } else {
    std::fputs("usage: planted_fault leak|freed|undefined\n", stderr);
    return 2;
  }
  return 0;
}
