#include "apps/exit_code.hpp"

#include "io/files.hpp"
#include "io/lock.hpp"
#include "io/plan.hpp"
#include "io/scan.hpp"
#include "io/segments_manifest.hpp"
#include "models/engine.hpp"
#include "models/package.hpp"
#include "stages/options.hpp"

namespace millrace {

ExitCode exit_code_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const UsageError&) {
    return ExitCode::usage;
  } catch (const InputError&) {
    return ExitCode::usage;
  } catch (const PackageError&) {
    return ExitCode::environment;
  } catch (const ModelError&) {
    return ExitCode::environment;
  } catch (const StorageError&) {
    return ExitCode::storage;
  } catch (const LockedError&) {
    return ExitCode::locked;
  } catch (const OutputMismatchError&) {
    return ExitCode::mismatch;
  } catch (const PlanMismatch&) {
    return ExitCode::mismatch;
  } catch (...) {
    return ExitCode::internal;
  }
}

}  // namespace millrace
