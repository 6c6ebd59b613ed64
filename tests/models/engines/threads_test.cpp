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
// ctest names the program. By hand, run the test in the folder of threads_probe.
const std::string probe =
    std::getenv("MILLRACE_THREADS_PROBE") == nullptr ? "./threads_probe" : std::getenv("MILLRACE_THREADS_PROBE");

std::string after(const std::string& text, const std::string& word) {
  const auto at = text.find(word);
  return at == std::string::npos ? "" : text.substr(at + word.size());
}

TEST_CASE("libraries that are opened later find a team's environment") {  // docs/ci.md has this name
  const std::string text = output_of(unset + probe);
  CHECK(text.starts_with("OMP_WAIT_POLICY=passive OMP_NUM_THREADS=3 OMP_DYNAMIC=false OMP_PROC_BIND=false "));
}

TEST_CASE("settings of the user stay, except for the size of the team") {
  const std::string text =
      output_of(unset + "OMP_WAIT_POLICY=active OMP_PROC_BIND=close OMP_NUM_THREADS=64 OMP_DYNAMIC=true " + probe);
  CHECK(text.starts_with("OMP_WAIT_POLICY=active OMP_NUM_THREADS=3 OMP_DYNAMIC=false OMP_PROC_BIND=close "));
}

TEST_CASE("tcmalloc keeps freed memory, unless the user has set how much it gives back") {
  const std::string rate = after(output_of(unset + probe), "release_rate=");
#ifdef MILLRACE_EXPECT_TCMALLOC
  REQUIRE_FALSE(rate.empty());
#else
  MESSAGE("skipped: this build has no tcmalloc");
  return;
#endif
  CHECK(rate == "0.0\n");
  CHECK(after(output_of(unset + "TCMALLOC_RELEASE_RATE=2.5 " + probe), "release_rate=") == "2.5\n");
}

}  // namespace
}  // namespace millrace
