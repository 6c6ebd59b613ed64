#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "io/input/source.hpp"

namespace millrace {

/// One element of SourceSpec::inputs, resolved against the file system.
class Input {
 public:
  virtual ~Input() = default;
  /// The next path, absolute or relative to base(), with the view and boxes of a manifest.
  virtual Step next(ListedItem& item) = 0;
  /// The folder from which its relative paths start: absolute, without a final '/' unless it is the root.
  const std::string& base() const { return base_; }
  /// The facts about this input that determine the plan.
  virtual nlohmann::json description() const = 0;
  /// Hash of a list file's content; empty for other inputs.
  virtual std::string content_hash() const { return {}; }

 protected:
  explicit Input(std::string base) : base_(std::move(base)) {}

 private:
  std::string base_;
};

/// Decides what an input is: by the file system, then by its name. Throws InputError if it cannot be used.
/// `counts` must outlive the input. The first next() opens list files and walks.
std::unique_ptr<Input> make_input(const std::string& text, const SourceSpec& spec, const StdinOptions& stdin_options,
                                  ScanCounts& counts, const std::stop_token& stop);

/// The current folder, absolute.
std::string current_folder();

/// `path` below `folder`; an absolute `path` is returned unchanged.
std::string join_path(std::string_view folder, std::string_view path);

/// The path without empty names and ".". The file system resolves "..", because its meaning depends on links.
std::string clean_path(const std::string& path);

/// An absolute path below `root`, relative to it; other paths unchanged.
std::string relative_below(std::string_view root, const std::string& path);

/// Text for JSON: the bytes if they are UTF-8, else {"text": <with U+FFFD>, "bytes_hex": <exact bytes>}.
nlohmann::json json_bytes(std::string_view bytes);

/// The bytes that json_bytes() wrote; nothing for other JSON.
std::optional<std::string> bytes_from_json(const nlohmann::json& json);

}  // namespace millrace
