#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// True when the text holds a wildcard that is neither escaped nor unclosed.
bool has_wildcards(std::string_view pattern);

/// A compiled glob pattern over '/'-separated paths, bytes compared exactly.
///
/// `*` any bytes within one name, `?` one UTF-8 character (else one byte), `[a-z]` and `[!a-z]` one byte of a set, `**`
/// as a whole name: any number of folders (none too), `{jpg,png}` alternatives, `\` takes the next byte literally. As
/// in a shell, a wildcard at the start of a name does not match a leading dot, and `**` does not enter hidden folders.
/// An unclosed `[` or `{` stands for itself. Matching costs at most (names of the path) x (names of the pattern) name
/// comparisons, each of at most (bytes) x (bytes): no pattern makes it exponential.
class Glob {
 public:
  /// Throws std::invalid_argument when it is longer than 4,096 bytes or its braces stand for more than 1,024 patterns.
  explicit Glob(std::string_view pattern);

  /// Whether the whole path matches.
  bool matches(std::string_view path) const;

  /// Whether something below this folder can match ("" is the top).
  bool may_match_below(std::string_view folder) const;

  /// Whether every alternative ends in a literal extension, as `*.dat` does and `*` does not.
  bool names_extension() const;

  const std::string& text() const { return text_; }

 private:
  using Names = std::vector<std::string>;
  std::string text_;
  std::vector<Names> alternatives_;
};

/// A pattern of a view: one without '/' is matched with the file's name alone, any other with the whole relative path.
class PathPattern {
 public:
  explicit PathPattern(std::string_view pattern);
  bool matches(std::string_view path) const;

 private:
  Glob glob_;
  bool name_only_;
};

/// A pattern cut before the first name with wildcards: `a/b/*/c.jpg` gives {"a/b", "*/c.jpg"}, `/x*` gives {"/", "x*"}.
/// Escapes in the folder part are resolved.
struct GlobParts {
  std::string folder;
  std::string pattern;
};
GlobParts split_glob(std::string_view pattern);

}  // namespace millrace
