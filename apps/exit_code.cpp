#include "apps/exit_code.hpp"

#include <new>
#include <system_error>

#include "base/plugin.hpp"
#include "io/files/files.hpp"
#include "io/files/lock.hpp"
#include "io/input/scan.hpp"
#include "io/results/plan.hpp"
#include "io/results/segments_manifest.hpp"
#include "models/engine.hpp"
#include "models/package.hpp"
#include "run/limits.hpp"
#include "run/message_of.hpp"
#include "stages/options.hpp"

namespace millrace {
ExitCode exit_code_of(const std::exception_ptr& thrown) {
  try {
    std::rethrow_exception(thrown);
  } catch (const UsageError&) {
    return ExitCode::usage;
  } catch (const InputError&) {
    return ExitCode::usage;
  } catch (const LimitError&) {
    return ExitCode::environment;
  } catch (const std::bad_alloc&) {
    return ExitCode::environment;
  } catch (const PackageError&) {
    return ExitCode::environment;
  } catch (const PluginError&) {
    return ExitCode::environment;
  } catch (const ModelError&) {
    return ExitCode::environment;
  } catch (const DeviceError&) {
    return ExitCode::environment;
  } catch (const StorageError&) {
    return ExitCode::storage;
  } catch (const LockedError&) {
    return ExitCode::locked;
  } catch (const OutputMismatchError&) {
    return ExitCode::mismatch;
  } catch (const ResultsDamaged&) {
    return ExitCode::mismatch;
  } catch (const PlanMismatch&) {
    return ExitCode::mismatch;
  } catch (const PlanDamaged&) {
    return ExitCode::mismatch;
  } catch (const std::system_error& error) {
    return is_out_of_threads(error) ? ExitCode::environment : ExitCode::internal;
  } catch (...) {  // bugs of ours, such as FramesLost and std::logic_error
    return ExitCode::internal;
  }
}

}  // namespace millrace
