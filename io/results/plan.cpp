#include "io/results/plan.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "base/json.hpp"
#include "io/files/source_names.hpp"
#include "io/results/plan_files.hpp"
#include "io/results/plan_scan.hpp"

namespace millrace {
namespace {

using nlohmann::json;

std::string view_names(const json& plan) {
  std::string names;
  for (const json& view : plan.value("/settings/views"_json_pointer, json::array()))
    names += (names.empty() ? "" : ", ") + display_name(view.at("name").get<std::string>());
  return names;
}

/// Removes the views from both plans and returns their differences. They are in three places of a plan.
/// A user needs one line for all of them.
std::vector<std::string> view_differences(json& planned, json& now) {
  const std::string before = view_names(planned), after = view_names(now);
  bool same = true;
  for (const char* key : {"/settings/views", "/settings/packages/views", "/source/views"}) {
    const json::json_pointer pointer(key);
    // Without rules of its own a source has an empty list, and packages have no entry.
    same = same && planned.value(pointer, json()) == now.value(pointer, json());
    for (json* plan : {&planned, &now}) {
      if (plan->contains(pointer)) plan->at(pointer.parent_pointer()).erase(pointer.back());
    }
  }
  if (same) return {};
  if (before == after) return {"views: the same names with other patterns or detectors"};
  return {"views: " + before + " in the plan, " + after + " now"};
}

void check_same(json planned, json now, const std::string& out_folder) {
  auto differences = view_differences(planned, now);
  for (auto& difference : json_differences(planned, now)) differences.push_back(std::move(difference));
  if (differences.empty()) return;
  std::string text = "the plan in '" + display_name(out_folder) + "' was made with other settings:";
  for (const std::string& difference : differences) text += "\n  " + difference;
  throw PlanMismatch(text + "\nUse the same settings and packages to continue, or a new output folder");
}

json plan_of(const PlanOptions& options, const json& settings, const Source& source) {
  return {{"schema", 1},
          {"tool", options.tool},
          {"segment_items", options.segment_items},
          {"settings", settings},
          {"source", source.description()}};
}

/// A plan that an earlier attempt began.
struct StoredPlan {
  std::string hash;
  std::vector<PlanSegmentHeader> headers;
  std::optional<PlanEnd> end;

  /// Whether the scan has ended.
  /// Segments that end.json does not know are of an --add-new that was cut off. It is finished first.
  bool is_whole() const { return end && end->segments == static_cast<std::int64_t>(headers.size()); }
  /// Whether stdin is the only input and has been scanned once. Only reading it shows what its list is now.
  /// The lines of the earlier list are skipped, and more lines are added.
  bool reads_stdin_again(const Source& source) const {
    return is_whole() && source.spec().inputs == std::vector<std::string>{"-"} && end->passes == 1;
  }
};

/// Throws if it is not the plan that would be made now.
std::optional<StoredPlan> read_stored(const PlanFiles& files, const json& now, const std::string& out_folder,
                                      const FileSystem& file_system) {
  const auto stored = files.read_plan();
  const bool has_segments = file_exists(files.folder() + "/" + plan_segment_name(0), file_system);
  if (!stored && has_segments) {
    throw PlanDamaged("'" + display_name(files.folder()) +
                      "' contains segments but no plan.json: restore it, or start over with a new output folder");
  }
  // plan.json alone is of an attempt that was killed before its first segment. It binds nothing and is replaced.
  if (!stored || !(has_segments || file_exists(files.folder() + "/end.json", file_system))) return {};
  check_same(*stored, now, out_folder);
  StoredPlan plan{plan_hash(*stored), {}, {}};
  plan.headers = files.read_headers(plan.hash);
  plan.end = files.read_end(plan.hash, plan.headers);
  return plan;
}

/// Throws if lists have changed since the plan was completed.
void check_lists(const PlanEnd& end, const Source& source, const std::string& out_folder) {
  const json now = source.list_hashes();
  if (now == end.lists) return;
  std::string text = "the plan in '" + display_name(out_folder) + "' is complete, but these lists have changed since:";
  for (const auto& [number, hash] : now.items()) {
    if (end.lists.value(number, "") == hash.get<std::string>()) continue;
    text += " '" + display_name(source.spec().inputs.at(std::stoul(number))) + "'";
  }
  throw PlanMismatch(text + ". Use --add-new to append what is new in them, or a new output folder");
}

}  // namespace

SourceSpec without_output(SourceSpec spec, const std::string& out_folder) {
  struct stat status {};
  if (::stat(out_folder.c_str(), &status) != 0) throw StorageError("open", out_folder, errno);
  // By identity, because links can lead to the output folder by other names.
  spec.excluded.push_back({status.st_dev, status.st_ino});
  return spec;
}

bool check_plan(const std::string& out_folder, const json& settings, SourceSpec spec, const PlanOptions& options) {
  const Source source(without_output(std::move(spec), out_folder), options.stdin_options);
  const auto stored = read_stored(PlanFiles(out_folder, *options.files), plan_of(options, settings, source), out_folder,
                                  *options.files);
  if (!stored) return false;
  if (stored->is_whole() && !options.add_new && !stored->reads_stdin_again(source))
    check_lists(*stored->end, source, out_folder);
  return true;
}

std::vector<std::vector<int>> cut_batches(const std::vector<Item>& items, int batch_size) {
  if (batch_size < 1)
    throw std::invalid_argument("batch size " + std::to_string(batch_size) + ": it must be at least 1");
  std::map<int, std::vector<int>> by_view;
  for (std::size_t i = 0; i < items.size(); ++i) by_view[items[i].view].push_back(static_cast<int>(i));
  std::vector<std::vector<int>> batches;
  for (const auto& [view, positions] : by_view) {
    for (std::size_t start = 0; start < positions.size(); start += static_cast<std::size_t>(batch_size)) {
      const auto end = std::min(positions.size(), start + static_cast<std::size_t>(batch_size));
      batches.emplace_back(positions.begin() + static_cast<std::ptrdiff_t>(start),
                           positions.begin() + static_cast<std::ptrdiff_t>(end));
    }
  }
  return batches;
}

class Plan::Impl {
 public:
  Impl(const std::string& out_folder, const json& settings, SourceSpec spec, PlanOptions options)
      : options_(std::move(options)),
        files_(out_folder, *options_.files),
        source_(without_output(std::move(spec), out_folder), options_.stdin_options, stop_.get_token()) {
    if (options_.segment_items < 1 || options_.look_ahead < 1)
      throw std::invalid_argument("segment_items and look_ahead must be at least 1");
    json plan = plan_of(options_, settings, source_);
    open(out_folder, plan);
    if (totals_.complete) return;
    // The last step of the constructor: the thread uses all members.
    scanner_ = std::thread([this, scan = scan_options(std::move(plan))]() mutable { scan_all(std::move(scan)); });
  }

  ~Impl() {
    stop();
    if (scanner_.joinable()) scanner_.join();
  }

  void stop() {
    stop_.request_stop();
    // A waiter checks the stop under this lock. So it cannot miss the call between its check and its wait.
    const std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

  std::optional<PlannedSegment> next_segment() {
    while (next_stored_ < stored_segments_ && !stop_.stop_requested()) {
      const std::int64_t index = next_stored_++;
      // Stored segments need no queue: they are read one by one, as the run asks for them.
      if (!options_.is_done || !options_.is_done(index)) return files_.read_segment(index, hash_, views());
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_.stop_requested() || !queue_.empty() || finished_; });
    if (stop_.stop_requested()) return {};
    if (queue_.empty()) {
      if (failure_) std::rethrow_exception(failure_);
      return {};
    }
    PlannedSegment segment = std::move(queue_.front());
    queue_.pop_front();
    // publish() may wait for room in the queue.
    changed_.notify_all();
    return segment;
  }

  PlanTotals totals() const {
    const std::lock_guard lock(mutex_);
    return totals_;
  }

  ScanCounts counts() const {
    const std::lock_guard lock(mutex_);
    return counts_;
  }

  const std::vector<std::string>& views() const { return source_.views().names(); }
  const std::string& root() const { return source_.root(); }
  const std::string& hash() const { return hash_; }

 private:
  /// Finds what is on disk, and whether anything is left to scan.
  void open(const std::string& out_folder, const json& plan) {
    hash_ = plan_hash(plan);
    bool whole = false;
    if (auto stored = read_stored(files_, plan, out_folder, *options_.files)) {
      // Only here, not in check_plan(): the caller of Plan holds the lock of the folder.
      remove_stale_temporaries(files_.folder(), *options_.files);
      whole = stored->is_whole() && !options_.add_new;
      reads_stdin_again_ = whole && stored->reads_stdin_again(source_);
      hash_ = stored->hash;
      headers_ = std::move(stored->headers);
      end_ = std::move(stored->end);
    }
    stored_segments_ = static_cast<std::int64_t>(headers_.size());
    for (const PlanSegmentHeader& header : headers_) {
      totals_.items += header.items;
      totals_.bytes += header.bytes;
    }
    totals_.segments = stored_segments_;
    totals_.complete = whole && !reads_stdin_again_;
    if (!totals_.complete) return;
    check_lists(*end_, source_, out_folder);
    counts_ = end_->counts;
    finished_ = true;
    if (totals_.items == 0 && !options_.allow_empty) {
      throw InputError("the plan in '" + display_name(out_folder) +
                       "' has no items: use --add-new to look for new ones");
    }
  }

  PlanScan::Options scan_options(json plan) const {
    PlanScan::Options scan;
    scan.plan = std::move(plan);
    scan.plan_hash = hash_;
    scan.headers = headers_;
    // After the first scan, each pass has the next number, and a pass that was cut off keeps its number.
    // With --add-new before the first scan has ended, the rest counts as pass 1.
    const int begun = headers_.empty() ? 0 : headers_.back().pass;
    scan.pass = reads_stdin_again_                      ? 0
                : end_                                  ? end_->passes
                : options_.add_new && !headers_.empty() ? std::max(1, begun)
                                                        : begun;
    if (reads_stdin_again_) scan.finished = end_;
    scan.segment_items = options_.segment_items;
    scan.allow_empty = options_.allow_empty;
    if (!headers_.empty()) scan.last_path = files_.read_segment(stored_segments_ - 1, hash_, views()).items.back().path;
    return scan;
  }

  void scan_all(PlanScan::Options options) {
    std::exception_ptr failure;
    std::optional<PlanEnd> end;
    try {
      PlanScan scan(files_, source_, std::move(options));
      end = scan.run(stop_.get_token(), [this](PlannedSegment segment, const PlanSegmentHeader& header) {
        return publish(std::move(segment), header);
      });
    } catch (...) {
      failure = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    failure_ = failure;
    if (end) counts_ = end->counts;
    totals_.complete = end.has_value();
    finished_ = true;
    changed_.notify_all();
  }

  /// Waits for room in the queue; false when stopped.
  bool publish(PlannedSegment segment, const PlanSegmentHeader& header) {
    std::unique_lock lock(mutex_);
    totals_.items += header.items;
    totals_.new_items += header.items;
    totals_.bytes += header.bytes;
    ++totals_.segments;
    // A copy, because only the scan thread may look into the source's counts.
    counts_ = source_.counts();
    queue_.push_back(std::move(segment));
    changed_.notify_all();
    const auto room = static_cast<std::size_t>(options_.look_ahead);
    changed_.wait(lock, [&] { return stop_.stop_requested() || queue_.size() < room; });
    return !stop_.stop_requested();
  }

  PlanOptions options_;
  std::stop_source stop_;
  PlanFiles files_;
  Source source_;
  std::string hash_;
  std::vector<PlanSegmentHeader> headers_;
  std::optional<PlanEnd> end_;
  std::int64_t stored_segments_ = 0;
  // Only next_segment() uses it, so it needs no lock.
  std::int64_t next_stored_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PlannedSegment> queue_;
  std::exception_ptr failure_;
  bool finished_ = false;
  bool reads_stdin_again_ = false;  // the plan has one finished pass, and its list is on stdin
  PlanTotals totals_;
  ScanCounts counts_;
  std::thread scanner_;
};

Plan::Plan(const std::string& out_folder, const json& settings, SourceSpec spec, PlanOptions options)
    : impl_(std::make_unique<Impl>(out_folder, settings, std::move(spec), std::move(options))) {}
Plan::~Plan() = default;

std::optional<PlannedSegment> Plan::next_segment() { return impl_->next_segment(); }
void Plan::stop() { impl_->stop(); }
PlanTotals Plan::totals() const { return impl_->totals(); }
ScanCounts Plan::counts() const { return impl_->counts(); }
const std::string& Plan::hash() const { return impl_->hash(); }
const std::string& Plan::root() const { return impl_->root(); }
const std::vector<std::string>& Plan::views() const { return impl_->views(); }

}  // namespace millrace
