#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// True if the text contains a wildcard that is neither escaped nor unclosed.
bool has_wildcards(std::string_view pattern);

/// A compiled glob pattern for paths with '/' between names. Bytes are compared exactly.
///
/// - `*` any bytes within one name
/// - `?` one UTF-8 character, or one byte that is not UTF-8
/// - `[a-z]`, `[!a-z]` one byte that is in the set, or not in it
/// - `{jpg,png}` one of the alternatives
/// - `**` as a whole name: any number of folders, also none
/// - `\` takes the next byte literally
///
/// As in a shell, a wildcard at the start of a name does not match a leading dot.
/// `**` does not enter hidden folders. An unclosed `[` or `{` is a literal.
/// Matching costs at most (names of the path) x (names of the pattern) comparisons of names.
/// Each comparison costs at most (bytes) x (bytes), so no pattern takes exponential time.
class Glob {
 public:
  /// Throws std::invalid_argument if it has more than 4,096 bytes or its braces stand for more than 1,024 patterns.
  explicit Glob(std::string_view pattern);

  /// Whether the whole path matches.
  bool matches(std::string_view path) const;

  /// Whether anything below this folder can match. "" is the top.
  bool may_match_below(std::string_view folder) const;

  /// Whether every alternative ends in a literal extension, as `*.dat` does and `*` does not.
  bool names_extension() const;

  const std::string& text() const { return text_; }

 private:
  using Names = std::vector<std::string>;
  std::string text_;
  std::vector<Names> alternatives_;
};

/// A pattern of a view. Without '/' it is compared with the file's name, else with the whole relative path.
/// `**` alone matches every path. Folders are scanned without hidden names; a list may have some.
class PathPattern {
 public:
  explicit PathPattern(std::string_view pattern);
  bool matches(std::string_view path) const;

 private:
  Glob glob_;
  bool everything_, name_only_;
};

/// A pattern, cut before the first name with wildcards.
/// `a/b/*/c.jpg` gives {"a/b", "*/c.jpg"}, `/x*` gives {"/", "x*"}. Escapes in the folder part are resolved.
struct GlobParts {
  std::string folder;
  std::string pattern;
};
GlobParts split_glob(std::string_view pattern);

}  // namespace millrace
