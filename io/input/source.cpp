#include "io/input/source.hpp"

#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/json.hpp"
#include "base/nearest.hpp"
#include "io/files/source_names.hpp"
#include "io/input/source_inputs.hpp"

namespace millrace {
namespace {

void check_selection(const Selection& selection) {
  if (!(selection.sample > 0 && selection.sample <= 1)) {
    throw InputError("the sample is " + std::to_string(selection.sample * 100) +
                     " %: it must be above 0 and at most 100 %");
  }
  if (selection.every < 1) throw InputError("every is " + std::to_string(selection.every) + ": it must be at least 1");
  if (selection.limit < 0)
    throw InputError("limit is " + std::to_string(selection.limit) + ": it must not be negative");
}

bool sampled(const Selection& selection, std::string_view path) {
  if (selection.sample >= 1) return true;
  // The top 53 bits as a number in [0, 1), which is exact in double.
  const auto hash = XXH3_64bits_withSeed(path.data(), path.size(), selection.seed);
  return std::ldexp(static_cast<double>(hash >> 11U), -53) < selection.sample;
}

}  // namespace

Views::Views(const std::vector<ViewRule>& rules) : everything_(rules.empty()) {
  if (everything_) names_.emplace_back(default_view);
  for (const ViewRule& rule : rules) {
    if (rule.name.empty())
      throw InputError("the view with the pattern '" + rule.pattern + "' has no name: give it one");
    // A view may have several rules.
    auto known = index_of(rule.name);
    if (!known) {
      known = static_cast<int>(names_.size());
      names_.push_back(rule.name);
    }
    if (rule.pattern.empty()) continue;
    try {
      rules_.push_back({PathPattern(rule.pattern), *known});
    } catch (const std::invalid_argument& error) {
      throw InputError("view '" + rule.name + "': " + error.what());
    }
  }
}

std::optional<int> Views::index_of(std::string_view name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) return {};
  return static_cast<int>(found - names_.begin());
}

std::optional<int> Views::of_path(std::string_view path) const {
  if (everything_) return 0;
  const auto found =
      std::find_if(rules_.begin(), rules_.end(), [&](const Rule& rule) { return rule.pattern.matches(path); });
  if (found == rules_.end()) return {};
  return found->view;
}

class Source::Impl {
 public:
  Impl(SourceSpec spec, const StdinOptions& stdin_options, const std::stop_token& stop)
      : spec_(std::move(spec)), views_(spec_.views) {
    if (spec_.inputs.empty()) throw InputError("no input: name a folder, file, list or pattern with --input");
    if (std::count(spec_.inputs.begin(), spec_.inputs.end(), "-") > 1)
      throw InputError("'-' (stdin) can be an input only once");
    check_selection(spec_.selection);
    for (const std::string& text : spec_.inputs) {
      inputs_.push_back(make_input(text, spec_, stdin_options, counts_, stop));
    }
    // Inputs may have nothing in common, so the paths of several start from the current folder.
    root_ = inputs_.size() == 1 ? inputs_[0]->base() : current_folder();
  }

  Step next(Item& item, SourcePosition& position) {
    while (current_ < inputs_.size()) {
      const Step step = inputs_[current_]->next(listed_);
      if (step == Step::idle) return step;
      if (step == Step::end) {
        // A single input without pictures is an error with a sentence of its own (nothing_found).
        if (!std::exchange(has_given_, false) && inputs_.size() > 1) counts_.empty_inputs.add(spec_.inputs[current_]);
        ++current_;
        continue;
      }
      has_given_ = true;
      if (accept(item)) {
        position = {static_cast<int>(current_), listed_.line};
        return Step::item;
      }
    }
    return Step::end;
  }

  nlohmann::json description() const {
    using nlohmann::json;
    json inputs = json::array();
    for (const auto& input : inputs_) inputs.push_back(input->description());
    json views = json::array();
    for (const ViewRule& rule : spec_.views)
      views.push_back({{"name", json_bytes(rule.name)}, {"pattern", json_bytes(rule.pattern)}});
    const Selection& chosen = spec_.selection;
    return {{"inputs", inputs},    {"root", json_bytes(root_)}, {"views", views},       {"sample", chosen.sample},
            {"seed", chosen.seed}, {"every", chosen.every},     {"limit", chosen.limit}};
  }

  nlohmann::json list_hashes() const {
    auto hashes = nlohmann::json::object();
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (const std::string hash = inputs_[i]->content_hash(); !hash.empty()) hashes[std::to_string(i)] = hash;
    }
    return hashes;
  }

  std::string nothing_found() const {
    std::string text = "no picture in";
    for (const std::string& input : spec_.inputs)
      text += (&input == spec_.inputs.data() ? " '" : ", '") + display_name(input) + "'";
    const std::string summary = counts_.summary();
    text += summary.empty() ? ": the input is empty" : "; skipped: " + summary;
    if (counts_[Skip::no_view].count > 0) {
      text += "; no view's pattern matches, for example, '" + display_name(counts_[Skip::no_view].first[0]) +
              "' (patterns:";
      for (const ViewRule& rule : spec_.views)
        text += " " + display_name(rule.name) + "='" + display_name(rule.pattern) + "'";
      text += "). Patterns are matched with paths relative to '" + display_name(root_) + "'";
    }
    return text;
  }

  SourceSpec spec_;
  Views views_;
  ScanCounts counts_;
  std::string root_;

 private:
  /// Path and view of the listed picture. False if it is a video, or if the views or the selection leave it out.
  bool accept(Item& item) {
    std::string path = listed_.path;
    const std::string& base = inputs_[current_]->base();
    if (is_video_extension(extension_of(path))) {
      counts_.videos.add(path);
      return false;
    }
    // Paths of a walk are clean already. Listed ones may contain "..", or be absolute.
    if (listed_.line > 0) path = clean_path(join_path(base, path));
    if (base != root_) path = join_path(base, path);
    path = relative_below(root_, path);
    const std::optional<int> view = listed_.view.empty() ? views_.of_path(path) : named_view();
    if (!view) {
      counts_[Skip::no_view].add(path);
      return false;
    }
    // The sample goes by a hash of the path, so files that are added later change none of its choices.
    if (!sampled(spec_.selection, path) || sampled_++ % spec_.selection.every != 0) {
      ++counts_.not_selected;
      return false;
    }
    item = Item{0, std::move(path), 0, 0, *view, std::move(listed_.boxes)};
    return true;
  }

  std::optional<int> named_view() const {
    const auto view = views_.index_of(listed_.view);
    if (!view) {
      throw InputError("'" + display_name(spec_.inputs[current_]) + "' line " + std::to_string(listed_.line) +
                       ": unknown view '" + display_name(listed_.view) + "'" +
                       (spec_.views.empty() ? "; name the views in a recipe, such as views: [{name: front}]"
                                            : did_you_mean(listed_.view, views_.names(), "known: " + known_views())));
    }
    return view;
  }

  std::string known_views() const {
    std::string text;
    for (const std::string& name : views_.names()) text += (text.empty() ? "'" : ", '") + display_name(name) + "'";
    return text;
  }

  std::vector<std::unique_ptr<Input>> inputs_;
  std::size_t current_ = 0;
  bool has_given_ = false;  // whether the current input listed anything
  ListedItem listed_;
  std::int64_t sampled_ = 0;
};

Source::Source(SourceSpec spec, StdinOptions stdin_options, std::stop_token stop)
    : impl_(std::make_unique<Impl>(std::move(spec), stdin_options, stop)) {}
Source::~Source() = default;
Source::Source(Source&&) noexcept = default;

Step Source::next(Item& item, SourcePosition& position) { return impl_->next(item, position); }
const std::string& Source::root() const { return impl_->root_; }
const Views& Source::views() const { return impl_->views_; }
const ScanCounts& Source::counts() const { return impl_->counts_; }
const SourceSpec& Source::spec() const { return impl_->spec_; }
nlohmann::json Source::description() const { return impl_->description(); }
nlohmann::json Source::list_hashes() const { return impl_->list_hashes(); }
std::string Source::nothing_found() const { return impl_->nothing_found(); }

void Source::measure(Item& item) const {
  struct stat status {};
  if (::stat(join_path(root(), item.path).c_str(), &status) != 0) return;
  item.bytes = status.st_size;
  item.mtime_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

DryRun dry_run(const SourceSpec& spec, std::size_t first_paths, StdinOptions stdin_options, std::stop_token stop) {
  // Never idle: a dry run has nothing to do in a pause of stdin, and would take it for the end.
  stdin_options.idle.after = std::chrono::hours(24 * 365);
  Source source(spec, stdin_options, stop);
  DryRun found;
  found.view_names = source.views().names();
  found.per_view.resize(found.view_names.size());
  std::map<std::string, std::int64_t> extensions;
  Item item;
  SourcePosition position;
  while ((spec.selection.limit == 0 || found.items < spec.selection.limit) &&
         source.next(item, position) == Step::item) {
    source.measure(item);
    ++found.items;
    found.bytes += item.bytes;
    ++found.per_view[static_cast<std::size_t>(item.view)];
    ++extensions[extension_of(item.path)];
    if (found.first_paths.size() < first_paths) found.first_paths.push_back(item.path);
  }
  found.per_extension.assign(extensions.begin(), extensions.end());
  found.counts = source.counts();
  if (found.items == 0) found.nothing_found = source.nothing_found();
  return found;
}

}  // namespace millrace
