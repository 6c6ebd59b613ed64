// The exit code and the message for an exception that ended the program.
#include "apps/exit_code.hpp"
#include "run/message_of.hpp"

#include <doctest/doctest.h>

#include <new>
#include <stdexcept>
#include <system_error>

#include "base/plugin.hpp"
#include "io/files/files.hpp"
#include "io/files/lock.hpp"
#include "io/input/scan.hpp"
#include "io/results/plan.hpp"
#include "io/results/segments_manifest.hpp"
#include "models/engine.hpp"
#include "models/package.hpp"
#include "pipeline/graph_result.hpp"
#include "run/limits.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

template <class Error>
int code_of(const Error& error) {
  return static_cast<int>(exit_code_of(std::make_exception_ptr(error)));
}

TEST_CASE("each kind of error has its published code") {
  CHECK(code_of(UsageError("u")) == 2);
  CHECK(code_of(InputError("i")) == 2);
  CHECK(code_of(LimitError("l")) == 5);
  CHECK(code_of(PackageError("p")) == 5);
  CHECK(code_of(ModelError("m")) == 5);
  CHECK(code_of(PluginError("p")) == 5);
  CHECK(code_of(std::bad_alloc()) == 5);
  CHECK(code_of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again))) == 5);
  CHECK(code_of(StorageError("write", "/out/x", ENOSPC)) == 6);
  CHECK(code_of(LockedError("/out", this_process(), "wait")) == 7);
  CHECK(code_of(PlanMismatch("p")) == 8);
  CHECK(code_of(PlanDamaged("p")) == 8);
  CHECK(code_of(OutputMismatchError("o")) == 8);
  CHECK(code_of(ResultsDamaged("r")) == 8);
  CHECK(code_of(std::runtime_error("r")) == 1);
  CHECK(code_of(RunError("graph", "r")) == 1);
  CHECK(static_cast<int>(exit_code_of(std::make_exception_ptr(7))) == 1);
}

TEST_CASE("frames that never left the graph end the program with 1 and a sentence that names their place") {
  const FramesLost lost(10, 7, {{"segment", 2, {4}}, {"batch", 1, {5}}});
  CHECK(code_of(lost) == 1);
  const std::string text = message_of(lost);
  for (const char* word : {"3 of 10", "2 at segment (batches 4)", "1 at batch (batches 5)"})
    CHECK(text.find(word) != std::string::npos);
}

}  // namespace
}  // namespace millrace
