#include "models/engines/threads.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>

namespace millrace {
namespace {

std::string output_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), &pclose);
  std::string text;
  std::array<char, 256> piece{};
  while (std::fgets(piece.data(), piece.size(), pipe.get()) != nullptr) text += piece.data();
  return text;
}

const std::string unset =
    "env -u OMP_WAIT_POLICY -u OMP_NUM_THREADS -u OMP_DYNAMIC -u OMP_PROC_BIND -u TCMALLOC_RELEASE_RATE ";
// ctest names the program; a run by hand starts beside it.
const std::string probe =
    std::getenv("MILLRACE_THREADS_PROBE") == nullptr ? "./threads_probe" : std::getenv("MILLRACE_THREADS_PROBE");

TEST_CASE("a program starts itself anew with what libraries read at their start") {
  CHECK(output_of(unset + probe + " 'last one'") ==
        "ready=1 argc=2 argv0=" + probe +
            " last=last one OMP_WAIT_POLICY=passive OMP_NUM_THREADS=3 OMP_DYNAMIC=false MILLRACE_STARTED_ANEW=-\n");
}

TEST_CASE("argv[0] stays what the caller gave") {
  CHECK(output_of(unset + "bash -c 'exec -a another-name " + probe + "'").find("argc=1 argv0=another-name") !=
        std::string::npos);
}

TEST_CASE("what the user has set stays, but the team's size is the program's") {
  const std::string text = output_of(unset + "OMP_WAIT_POLICY=active OMP_NUM_THREADS=64 " + probe);
  CHECK(text.find("OMP_WAIT_POLICY=active OMP_NUM_THREADS=3") != std::string::npos);
}

TEST_CASE("a second start is never followed by a third") {
  CHECK(output_of(unset + "MILLRACE_STARTED_ANEW=1 " + probe).find("ready=0") == 0);
}

TEST_CASE("a program that finds everything set goes on in the same process") {
  const std::string settings =
      "OMP_WAIT_POLICY=passive OMP_NUM_THREADS=3 OMP_DYNAMIC=false OMP_PROC_BIND=false TCMALLOC_RELEASE_RATE=0 ";
  CHECK(output_of("env " + settings + probe).find("ready=1") == 0);
}

}  // namespace
}  // namespace millrace
