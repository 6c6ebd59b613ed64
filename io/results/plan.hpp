#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/files/files.hpp"
#include "io/input/item.hpp"
#include "io/input/source.hpp"

namespace millrace {

/// The output folder has a plan that was made with other settings or another input.
/// The message names each difference. Exit code 8.
class PlanMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file of the plan is missing, cut off or changed. The message names it. Exit code 8.
class PlanDamaged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A closed segment: its items in plan order.
struct PlannedSegment {
  std::int64_t index = 0;
  std::vector<Item> items;
  std::string sha256;  ///< of its lines in the plan
};

/// Positions in `items` of each batch: view by view (by index), in input order, at most `batch_size` each.
/// Depends on the views alone. Throws std::invalid_argument for a batch size below 1.
std::vector<std::vector<int>> cut_batches(const std::vector<Item>& items, int batch_size);

/// Items of a segment, by default.
inline constexpr int items_of_segment = 2048;

struct PlanOptions {
  std::string tool;  ///< name and version; an earlier attempt must have the same
  int segment_items = items_of_segment;
  int look_ahead = 64;       ///< maximum of segments that wait for the run
  bool add_new = false;      ///< scan again and append what is not in the plan
  bool allow_empty = false;  ///< a plan without items is no error
  StdinOptions stdin_options;
  /// Segments of an earlier attempt that next_segment() skips without reading them.
  std::function<bool(std::int64_t segment)> is_done;
  const FileSystem* files = &real_files;
};

/// The same source without the output folder, which must exist and is never scanned.
SourceSpec without_output(SourceSpec spec, const std::string& out_folder);

/// Whether the output folder has a plan that a Plan with the same arguments would continue.
/// Throws what the constructor of Plan throws. Takes no lock and writes nothing.
bool check_plan(const std::string& out_folder, const nlohmann::json& settings, SourceSpec spec,
                const PlanOptions& options);

struct PlanTotals {
  std::int64_t items = 0;
  std::int64_t segments = 0;
  std::int64_t bytes = 0;
  std::int64_t new_items = 0;  ///< of `items`, those planned since this object was made
  bool complete = false;       ///< the scan has ended: items is final
};

/// The list of items to process, on disk under `<output>/plan/`. Later attempts read it from there:
/// - `plan.json`: tool, settings, source (schema 1), sealed by a hash
/// - `000000.jsonl`: a segment, with one line about itself and then one line for each item.
///   The line of an item has id, path, [path_b64,] bytes, mtime_ns, view, [boxes].
/// - `end.json`: written when the scan has ended, with totals and what the scan skipped
///
/// A thread of its own scans a new plan while the run consumes it.
/// A segment is durable on disk before next_segment() gives it. At most `look_ahead` segments wait.
/// A scan that was cut off continues after the last segment on disk. If the input did not change, it gives the same
/// bytes as a scan without interruption. Exception: a pause on stdin closes a segment early, and pauses do not repeat.
/// Pictures that appeared at earlier places of the folders in the meantime are left to --add-new.
/// Every file has a hash, which is checked when it is read.
class Plan {
 public:
  /// Opens or begins the plan of an output folder, which must exist and be locked by the caller.
  /// `settings` is everything but the source that determines results, in UTF-8. The output folder is never scanned.
  /// Throws InputError, PlanMismatch, PlanDamaged or StorageError.
  /// Throws std::invalid_argument for segment_items or look_ahead below 1.
  Plan(const std::string& out_folder, const nlohmann::json& settings, SourceSpec spec, PlanOptions options);
  /// Stops the scan and waits for its thread.
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// The next segment; waits while the scan works on it. Nothing at the end or after stop().
  /// Only one thread may call it. Throws PlanDamaged.
  /// After the segments before it, it throws the error that ended the scan:
  /// - InputError for a malformed list line, or for a plan without items
  /// - PlanMismatch for a list that is not the one that the plan began with
  /// - StorageError
  std::optional<PlannedSegment> next_segment();

  /// Ends the scan at the last closed segment and wakes next_segment(). A later Plan continues the scan.
  /// May be called from any thread.
  void stop();

  /// totals() and counts() may be called from any thread.
  PlanTotals totals() const;
  /// What the scan skipped: in the whole input if totals().complete, else up to the last closed segment.
  /// All zero until an interrupted scan has caught up.
  ScanCounts counts() const;

  /// Identifies settings and source: 64 hex digits, known from the start. PlannedSegment::sha256 covers the items.
  const std::string& hash() const;
  /// The folder from which relative paths of items start; absolute.
  const std::string& root() const;
  /// Names of views, by Item::view.
  const std::vector<std::string>& views() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
