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

/// The view of every picture if no view is named.
inline constexpr const char* default_view = "default";

/// Which pictures belong to a view; see PathPattern.
/// An empty pattern matches nothing: then only a manifest assigns pictures to the view.
struct ViewRule {
  std::string name;
  std::string pattern;
};

/// The part of the found pictures that is taken. Applied in this order: sample, every, limit.
struct Selection {
  /// Share of the pictures in (0, 1], chosen by a hash of each path: adding files changes no choice.
  double sample = 1;
  std::uint64_t seed = 0;  ///< of the sample
  std::int64_t every = 1;  ///< the 1st, (1 + every)th, ... of these
  std::int64_t limit = 0;  ///< maximum of items in the plan; 0: all
};

/// What the user wants to be read.
///
/// An input is one of these:
/// - a folder, which is walked
/// - `-`: a text list from stdin
/// - a text list (.txt, .lst) or a manifest (.csv, .jsonl, .ndjson)
/// - a glob pattern, if nothing with exactly that name exists
/// - any other name: a picture file, with any extension
/// Paths in text lists start from the current folder, paths in manifests from the manifest's folder.
/// `list_root` replaces both.
struct SourceSpec {
  std::vector<std::string> inputs;
  bool follow_dirs = false;    ///< follow links to folders
  bool nul_separated = false;  ///< text lists are separated by NUL bytes
  std::optional<std::string> list_root;
  std::vector<ViewRule> views;  ///< the first match wins; none: all pictures are in default_view
  Selection selection;
  std::vector<FileIdentity> excluded;  ///< folders never walked: the output
};

/// Where stdin is, and when it counts as idle. Tests replace it.
struct StdinOptions {
  int descriptor = 0;
  IdleRule idle;
};

/// The views of a run, by index.
class Views {
 public:
  /// Throws InputError for a view without a name and for a pattern that cannot be used.
  explicit Views(const std::vector<ViewRule>& rules);
  /// The names without duplicates, in order of first appearance; {default_view} without rules.
  const std::vector<std::string>& names() const { return names_; }
  std::optional<int> index_of(std::string_view name) const;
  /// The view of the first rule that matches; nothing if none does.
  std::optional<int> of_path(std::string_view path) const;

 private:
  struct Rule {
    PathPattern pattern;
    int view;
  };
  std::vector<std::string> names_;
  std::vector<Rule> rules_;
  bool everything_ = false;  // no rules: all pictures are in view 0
};

/// Where in the source an item was found.
struct SourcePosition {
  int input = 0;          ///< index into SourceSpec::inputs
  std::int64_t line = 0;  ///< of a list or manifest; 0 for walks and files, whose paths are their order
};

/// The stream of selected items of a SourceSpec. Their order depends on the files and the spec alone.
/// Use it from one thread at a time.
class Source {
 public:
  /// Looks at every input at once. Throws InputError for one that does not exist or cannot be used.
  explicit Source(SourceSpec spec, StdinOptions stdin_options = {}, std::stop_token stop = {});
  ~Source();
  Source(Source&&) noexcept;
  Source& operator=(Source&&) = delete;

  /// The next item without id, bytes and mtime_ns. The caller applies selection.limit.
  /// Throws InputError for malformed lists.
  Step next(Item& item, SourcePosition& position);

  /// Fills in bytes and mtime_ns. A missing file keeps 0 and fails when it is read.
  void measure(Item& item) const;

  /// The folder from which relative paths start. With several inputs it is the current folder. With one input it is
  /// that folder, the folder part of the glob, the folder of the picture, or the base of the list.
  const std::string& root() const;
  const Views& views() const;
  const ScanCounts& counts() const;
  const SourceSpec& spec() const;

  /// Everything about the source that determines the plan, except the files: resolved inputs, views, selection.
  nlohmann::json description() const;

  /// Hashes of the content of list files and manifests, by input number. Reads these files.
  nlohmann::json list_hashes() const;

  /// The sentence for a source without items: what was looked at, what was skipped, and why no view matched.
  std::string nothing_found() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// What a plan would contain, found without writing anything.
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
/// Scans the whole input, or up to selection.limit items. Reads stdin to its end.
DryRun dry_run(const SourceSpec& spec, std::size_t first_paths = 10, StdinOptions stdin_options = {},
               std::stop_token stop = {});

}  // namespace millrace
