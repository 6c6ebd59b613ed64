#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "io/input/item.hpp"
#include "io/input/manifest.hpp"
#include "io/input/scan.hpp"

namespace millrace {

/// The view of every picture where nobody named any.
inline constexpr const char* default_view = "default";

/// Which pictures belong to a view. Without '/' the pattern is matched with the file's name, else with the whole
/// relative path; an empty one matches nothing, so that only a manifest names the view.
struct ViewRule {
  std::string name;
  std::string pattern;
};

/// A part of what was found, chosen in this order: sample, every, limit.
struct Selection {
  double sample =
      1;  ///< share of the pictures in (0, 1], chosen by a hash of each path: adding files changes no choice
  std::uint64_t seed = 0;  ///< of the sample
  std::int64_t every = 1;  ///< the 1st, (1 + every)th, ... of these
  std::int64_t limit = 0;  ///< at most so many items in the plan; 0: all
};

/// What the user asks to be read.
///
/// An input is a folder (walked), `-` (a text list from stdin), a text list (.txt, .lst), a manifest (.csv, .jsonl,
/// .ndjson), a glob pattern (where nothing of that very name exists), or else a picture file, whatever its extension.
/// Paths in text lists are relative to the current folder, those in manifests to the manifest's folder; `list_root`
/// replaces both.
struct SourceSpec {
  std::vector<std::string> inputs;
  bool follow_dirs = false;    ///< follow links to folders
  bool nul_separated = false;  ///< text lists are separated by NUL bytes
  std::optional<std::string> list_root;
  std::vector<ViewRule> views;  ///< the first that matches wins; none: everything is of default_view
  Selection selection;
  std::vector<FileIdentity> excluded;  ///< folders never walked: the output
};

/// Where stdin is and when it counts as idle; replaced in tests.
struct StdinOptions {
  int descriptor = 0;
  IdleRule idle;
};

/// The views of a run, by index.
class Views {
 public:
  /// Throws InputError for a pattern that cannot be used.
  explicit Views(const std::vector<ViewRule>& rules);
  /// Distinct names in order of first appearance; {default_view} without rules.
  const std::vector<std::string>& names() const { return names_; }
  std::optional<int> index_of(std::string_view name) const;
  std::optional<int> of_path(std::string_view path) const;

 private:
  struct Rule {
    PathPattern pattern;
    int view;
  };
  std::vector<std::string> names_;
  std::vector<Rule> rules_;
  bool everything_ = false;  // no rules: all is of view 0
};

/// Where in the source an item was met.
struct SourcePosition {
  int input = 0;          ///< index into SourceSpec::inputs
  std::int64_t line = 0;  ///< of a list or manifest; 0 for walks and files, whose paths are their order
};

/// The stream of selected items of an SourceSpec, in an order that depends on the files and the spec alone.
class Source {
 public:
  /// Looks at every input at once: throws InputError for one that does not exist or cannot be used.
  explicit Source(SourceSpec spec, StdinOptions stdin_options = {}, std::stop_token stop = {});
  ~Source();
  Source(Source&&) noexcept;
  Source& operator=(Source&&) = delete;

  /// The next item without id, bytes and mtime_ns; selection.limit is the caller's. Throws InputError for malformed
  /// lists.
  Step next(Item& item, SourcePosition& position);

  /// Fills bytes and mtime_ns; a file that is not there keeps 0 and fails when it is read.
  void measure(Item& item) const;

  /// The folder that relative paths start from: the one folder given, the folder part of the one glob, the folder of
  /// the one picture, the base of the one list; the current folder when there are several inputs.
  const std::string& root() const;
  const Views& views() const;
  const ScanCounts& counts() const;
  const SourceSpec& spec() const;

  /// Everything about the source that determines the plan besides the files themselves: resolved inputs, views,
  /// selection.
  nlohmann::json description() const;

  /// Hashes of the content of list files and manifests by input number; reads them.
  nlohmann::json list_hashes() const;

  /// The sentence for a source without items: what was looked at, what was passed over, what to do.
  std::string nothing_found() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// What a plan would hold, found without writing anything.
struct DryRun {
  std::int64_t items = 0;
  std::int64_t bytes = 0;
  std::vector<std::string> view_names;
  std::vector<std::int64_t> per_view;                               ///< items, parallel to view_names
  std::vector<std::pair<std::string, std::int64_t>> per_extension;  ///< sorted by extension
  std::vector<std::string> first_paths;
  ScanCounts counts;
  std::string nothing_found;  ///< without items: the sentence of Source::nothing_found()
};
/// Scans everything; reads stdin to its end.
DryRun dry_run(const SourceSpec& spec, std::size_t first_paths = 10, StdinOptions stdin_options = {},
               std::stop_token stop = {});

}  // namespace millrace
