#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "io/input/source.hpp"

namespace millrace {

/// One element of SourceSpec::inputs, resolved against the file system.
class Input {
 public:
  virtual ~Input() = default;
  /// The next path, absolute or relative to base(), with what a manifest says about it.
  virtual Step next(ListedItem& item) = 0;
  /// Where its relative paths start: absolute, without a '/' at its end unless it is the root.
  const std::string& base() const { return base_; }
  /// What of it determines the plan.
  virtual nlohmann::json description() const = 0;
  /// Hash of a list file's content; empty for everything else.
  virtual std::string content_hash() const { return {}; }

 protected:
  explicit Input(std::string base) : base_(std::move(base)) {}

 private:
  std::string base_;
};

/// What an input is, decided by the file system and then by its name. Throws InputError when it cannot be used.
/// `counts` outlives the input. Lists and walks are opened by the first next().
std::unique_ptr<Input> make_input(const std::string& text, const SourceSpec& spec, const StdinOptions& stdin_options,
                                  ScanCounts& counts, const std::stop_token& stop);

/// The current folder, resolved.
std::string current_folder();

/// `path` below `folder`, or as it is where it is absolute.
std::string join_path(std::string_view folder, std::string_view path);

/// The path without empty names and "."; ".." is resolved through the file system, as its meaning depends on links.
std::string clean_path(const std::string& path);

/// An absolute path relative to `root` where it lies below, else unchanged.
std::string relative_below(std::string_view root, const std::string& path);

/// Text for JSON: the bytes where they are UTF-8, else {"b64": ...}.
nlohmann::json json_bytes(std::string_view bytes);

}  // namespace millrace
