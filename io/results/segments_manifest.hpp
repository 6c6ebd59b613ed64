#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/files.hpp"
#include "io/files/reason.hpp"
#include "io/results/journal.hpp"
#include "io/results/side_column.hpp"

namespace millrace {

/// The output folder has results of another plan, or of another version of the format; exit code 8.
class OutputMismatchError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A file of the results is missing or has changed since it was written. The message names it and the remedy.
/// Exit code 8.
class ResultsDamaged : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Numbers of items by result. items = ok + failed.
struct Counts {
  std::int64_t items = 0;
  std::int64_t ok = 0;
  std::map<Reason, std::int64_t> failed;
  std::int64_t objects = 0;
  std::int64_t resumed = 0;  ///< of `items`, those that an earlier attempt finished

  std::int64_t failed_items() const;
  void add(const Counts& other);
  void add(bool item_ok, Reason reason, std::int64_t item_objects);
};

/// What `segments/000123.manifest.json` says about `segments/000123.jsonl` and its side columns.
/// It contains nothing of time, host or run.
struct Manifest {
  static constexpr int schema = 1;  ///< of manifest and segment lines
  std::int64_t segment = 0;
  int revision = 0;  ///< 0: the segment itself; N: `000123.rN.jsonl`, which replaces lines
  std::string plan_hash;
  std::string items_hash;                        ///< of the segment's items in the plan; empty: not known
  std::int64_t first_item = -1, last_item = -1;  ///< -1 without items
  Counts counts;
  std::int64_t bytes = 0;
  std::string xxh3;                   ///< of the data file
  std::vector<SideColumn> columns{};  ///< by name

  /// One JSON object. Its last member is a hash of the others.
  std::string to_text() const;
  /// Nothing if to_text() did not make this text. Throws OutputMismatchError if it has another schema.
  static std::optional<Manifest> from_text(std::string_view text);
};

/// A file of a segment, as its name says: "000123.jsonl", "000123.r1.manifest.json", "000123.part",
/// "000123.embedding.f16".
struct SegmentFile {
  enum class Kind { data, manifest, journal, column };
  std::int64_t segment = 0;
  int revision = 0;
  Kind kind = Kind::data;
  std::string column{};  ///< its name, if the file is a column

  std::string name() const;
  static std::optional<SegmentFile> from_name(std::string_view name);
};

/// The folder of the segments in an output folder.
std::string segments_folder(const std::string& out_folder);

/// Reads a manifest; nothing if it is damaged.
/// Throws OutputMismatchError if it belongs to another plan than `plan_hash`. An empty hash accepts any.
std::optional<Manifest> read_manifest(const std::string& out_folder, const SegmentFile& file,
                                      std::string_view plan_hash, const FileSystem& files = real_files);

/// The sentence for a data file or side column that is missing or not as long as its manifest says.
/// Nothing if all of them have their lengths.
std::optional<std::string> length_problem(const std::string& out_folder, const Manifest& manifest,
                                          const FileSystem& files = real_files);

}  // namespace millrace
