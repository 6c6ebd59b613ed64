#include "io/results/plan_scan.hpp"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "io/files/source_names.hpp"

namespace millrace {
namespace {

std::string hex(std::uint64_t value) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(value));
  return text.data();
}

std::uint64_t hash_path(const std::string& path, std::uint64_t seed = 0) {
  return XXH3_64bits_withSeed(path.data(), path.size(), seed);
}

}  // namespace

PlanScan::PlanScan(PlanFiles& files, Source& source, Options options)
    : files_(files), source_(source), options_(std::move(options)) {
  for (const PlanSegmentHeader& header : options_.headers) {
    hashes_.push_back(header.items_sha256);
    items_ += header.items;
    bytes_ += header.bytes;
  }
  caught_up_ = options_.headers.empty() || options_.pass > 0;
}

/// Sorted hashes of 64 bits take 8 bytes an item. With 10^7 paths, two share a hash with a chance of 3 in a million.
void PlanScan::collect_planned_paths() {
  // Hashes instead of positions: with --add-new, new paths may be anywhere between the planned ones.
  known_.reserve(static_cast<std::size_t>(items_));
  for (const PlanSegmentHeader& header : options_.headers) {
    for (const Item& item : files_.read_segment(header.index, options_.plan_hash, source_.views().names()).items) {
      known_.push_back(hash_path(item.path));
    }
  }
  std::sort(known_.begin(), known_.end());
}

std::optional<PlanEnd> PlanScan::run(const std::stop_token& stop, const Closed& closed) {
  if (options_.pass > 0) collect_planned_paths();
  const std::int64_t limit = source_.spec().selection.limit;
  Item item;
  SourcePosition position;
  while (true) {
    // Not while the scan catches up: items_ counts the items on disk, and the list must still be compared with them.
    const bool full = caught_up_ && limit > 0 && items_ + static_cast<std::int64_t>(open_.size()) >= limit;
    const Step step = full ? Step::end : source_.next(item, position);
    if (stop.stop_requested()) return {};
    if (step == Step::end) break;
    if (step == Step::item && !is_planned(item, position)) {
      // Measured only now: a scan that catches up asks the file system for names only.
      source_.measure(item);
      item.id = items_ + static_cast<std::int64_t>(open_.size());
      open_.push_back(std::exchange(item, Item{}));
      open_last_ = position;
      open_chain_ = chain_;
    }
    // A pause of stdin closes a short segment, so the run gets the pictures named so far.
    const bool due = step == Step::idle || static_cast<int>(open_.size()) == options_.segment_items;
    if (due && !open_.empty() && !close(closed)) return {};
  }
  // Nothing came on stdin: the finished plan stays as it is.
  if (options_.finished && position_.line == 0) return options_.finished;
  if (!caught_up_) check_list(true);
  if (!open_.empty() && !close(closed)) return {};
  return finish();
}

bool PlanScan::is_planned(const Item& item, const SourcePosition& position) {
  // Each hash is the seed of the next. So the chain covers all paths of this input in their order.
  if (position.input != position_.input) chain_ = 0;
  chain_ = hash_path(item.path, chain_);
  position_ = position;
  if (options_.pass == 0) return !caught_up_ && passed_over(item, position);
  const std::uint64_t hash = hash_path(item.path);
  return std::binary_search(known_.begin(), known_.end(), hash) || !added_.insert(hash).second;
}

/// Whether the item is the last one on disk or comes before it.
bool PlanScan::passed_over(const Item& item, const SourcePosition& position) {
  const PlanSegmentHeader& last = options_.headers.back();
  if (position.input < last.last.input) return true;
  if (position.input > last.last.input) {
    check_list(true);
    return false;
  }
  // The paths of a folder have a fixed order, so the path itself is the place.
  if (last.last.line == 0) {
    const auto order = compare_scan_order(item.path, options_.last_path);
    caught_up_ = order >= 0;
    return order <= 0;
  }
  if (position.line < last.last.line) return true;
  // A list has no order of its own, so its line number is the place.
  // All paths up to that line must be those that were planned.
  if (position.line > last.last.line || hex(chain_) != last.chain) check_list(false);
  caught_up_ = true;
  return true;
}

/// Throws if a list ended or changed before the line of the last item on disk. A folder that shrank is no error.
void PlanScan::check_list(bool at_end) {
  const PlanSegmentHeader& last = options_.headers.back();
  caught_up_ = true;
  if (last.last.line == 0) return;
  const auto input = static_cast<std::size_t>(last.last.input);
  throw PlanMismatch(
      "the list '" + display_name(source_.spec().inputs.at(input)) + "' " +
      (at_end ? "is shorter than before: this plan already has" : "has changed: this plan has other paths in") +
      " its first " + std::to_string(last.last.line) + " lines, up to '" + display_name(options_.last_path) +
      "'. Give the same list again, or start with a new output folder");
}

bool PlanScan::close(const Closed& closed) {
  PlanSegmentHeader header;
  header.index = static_cast<std::int64_t>(hashes_.size());
  header.first_id = items_;
  header.items = static_cast<std::int64_t>(open_.size());
  header.pass = options_.pass;
  header.last = open_last_;
  header.chain = hex(open_chain_);
  std::string lines;
  for (const Item& item : open_) {
    lines += item_line(item, source_.views().names());
    header.bytes += item.bytes;
  }
  header.items_sha256 = sha256_hex(lines);
  // plan.json comes with the first segment: an input without items must not bind the output folder to its settings.
  if (header.index == 0) files_.write_plan(options_.plan);
  files_.write_segment(header, lines, options_.plan_hash);
  // The segment is durable now, so the run may have it.
  hashes_.push_back(header.items_sha256);
  items_ += header.items;
  bytes_ += header.bytes;
  return closed({header.index, std::exchange(open_, {}), header.items_sha256}, header);
}

PlanEnd PlanScan::finish() {
  if (hashes_.empty()) {
    if (!options_.allow_empty) throw InputError(source_.nothing_found());
    files_.write_plan(options_.plan);
  }
  PlanEnd end{
      items_,          bytes_, static_cast<std::int64_t>(hashes_.size()), options_.pass + 1, source_.list_hashes(),
      source_.counts()};
  files_.write_end(end, options_.plan_hash, hashes_);
  return end;
}

}  // namespace millrace
