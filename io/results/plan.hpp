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

/// The output folder holds a plan made with other settings or input; the message names each difference. Exit code 8.
class PlanMismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file of the plan is missing, cut or changed; the message names it. Exit code 8.
class PlanDamaged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A closed segment: items in plan order.
struct PlannedSegment {
  std::int64_t index = 0;
  std::vector<Item> items;
  std::string sha256;  ///< of its lines in the plan
};

/// Positions in `items` of each batch: view by view (by index), in input order, at most `batch_size` each. Depends on
/// the views alone. Throws std::invalid_argument for a batch size below 1.
std::vector<std::vector<int>> cut_batches(const std::vector<Item>& items, int batch_size);

struct PlanOptions {
  std::string tool;  ///< name and version; part of what must agree
  int segment_items = 2048;
  int look_ahead = 64;       ///< segments planned before the run takes them
  bool add_new = false;      ///< scan again and append what is not in the plan
  bool allow_empty = false;  ///< a plan without items is no error
  StdinOptions stdin_options;
  /// Segments of an earlier attempt that next_segment() passes over without reading them.
  std::function<bool(std::int64_t segment)> is_done;
  const FileSystem* files = &real_files;
};

/// The same source without the output folder, which exists and is never scanned.
SourceSpec without_output(SourceSpec spec, const std::string& out_folder);

/// Whether the output folder holds a plan that a Plan made of the same arguments goes on with. Throws PlanMismatch or
/// PlanDamaged where it would. Takes no lock and writes nothing.
bool check_plan(const std::string& out_folder, const nlohmann::json& settings, SourceSpec spec,
                const PlanOptions& options);

struct PlanTotals {
  std::int64_t items = 0;
  std::int64_t segments = 0;
  std::int64_t bytes = 0;
  std::int64_t new_items = 0;  ///< of `items`, those planned since this object was made
  bool complete = false;       ///< the scan has ended: items is final
};

/// What is to be done, on disk under `<output>/plan/` and read from there by later attempts:
///
///     plan.json      tool, settings, source (schema 1), sealed by a hash
///     000000.jsonl   a segment: one line about it, then one line an item: id, path, [path_b64,] bytes, mtime_ns, view,
///     [boxes] end.json       written when the scan has ended: totals and what was passed over
///
/// A new plan is scanned by a thread of its own while the run consumes it: a segment is on disk, durably, before
/// next_segment() gives it, and at most `look_ahead` of them wait. A scan that was cut off continues where the last
/// segment on disk ended: the result is the same bytes as without the interruption, if the input did not change (a list
/// closed in segments by silence on stdin is cut anew). What was added to folders before that place in the meantime is
/// left to --add-new. Every file carries a hash that is checked when it is read.
class Plan {
 public:
  /// Opens or begins the plan of an output folder, which exists and is locked by the caller. `settings` is all that
  /// determines results besides the source, in UTF-8. The output folder is never scanned.
  /// Throws InputError, PlanMismatch, PlanDamaged or StorageError.
  Plan(const std::string& out_folder, const nlohmann::json& settings, SourceSpec spec, PlanOptions options);
  /// Stops the scan and waits for its thread.
  ~Plan();
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  /// The next segment; waits while the scan works on it. Nothing at the end or after stop(). Called by one thread.
  /// Throws what ended the scan (InputError for a malformed list line or for a plan without items, PlanMismatch for a
  /// list that is not the one begun with, StorageError) after the segments before it, and PlanDamaged.
  std::optional<PlannedSegment> next_segment();

  /// Ends the scan at the last closed segment and wakes next_segment(); a later Plan continues. From any thread.
  void stop();

  PlanTotals totals() const;
  /// What the scan passed over: of the whole input when totals().complete, else up to the last closed segment; all zero
  /// while an interrupted scan has not caught up.
  ScanCounts counts() const;

  /// Identity of settings and source: 64 hex digits, known from the start. Items are covered by PlannedSegment::sha256.
  const std::string& hash() const;
  /// Where relative paths of items start; absolute.
  const std::string& root() const;
  /// Names of views, by Item::view.
  const std::vector<std::string>& views() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
