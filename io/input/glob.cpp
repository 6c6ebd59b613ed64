#include "io/input/glob.hpp"

#include <algorithm>
#include <stdexcept>

namespace millrace {
namespace {

/// Braces multiply: ten pairs of two already stand for 1,024 patterns, and each path is compared with all.
constexpr std::size_t max_alternatives = 1024;
constexpr std::size_t max_pattern_bytes = 4096;

std::string unescape(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    plain += text[i];
  }
  return plain;
}

/// The parts inside the braces that open at `open` ('{'), cut at their top-level commas.
/// `close` becomes the position of '}'. If there is none, it becomes npos and the result is empty.
std::vector<std::string_view> brace_parts(std::string_view text, std::size_t open, std::size_t& close) {
  std::vector<std::string_view> parts;
  std::size_t start = open + 1;
  int depth = 0;
  close = std::string_view::npos;
  for (std::size_t i = open + 1; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\\') {
      ++i;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && depth-- == 0) {
      parts.push_back(text.substr(start, i - start));
      close = i;
      return parts;
    } else if (c == ',' && depth == 0) {
      parts.push_back(text.substr(start, i - start));
      start = i + 1;
    }
  }
  return {};
}

/// All patterns without braces that the pattern stands for. A brace that is unclosed or has one part becomes a literal.
std::vector<std::string> expand_braces(std::string_view pattern) {
  std::vector<std::string> done;
  std::vector<std::string> open{std::string(pattern)};
  std::vector<std::size_t> from{0};
  while (!open.empty()) {
    std::string text = std::move(open.back());
    std::size_t at = from.back();
    open.pop_back();
    from.pop_back();
    while (at < text.size() && text[at] != '{') at += text[at] == '\\' ? 2 : 1;
    if (at >= text.size()) {
      done.push_back(std::move(text));
    } else {
      std::size_t close = 0;
      const auto parts = brace_parts(text, at, close);
      // A literal brace: it is escaped, and the search continues behind it.
      if (parts.size() < 2) {
        text.insert(at, "\\");
        open.push_back(std::move(text));
        from.push_back(at + 2);
      } else {
        // In reverse, because the last one is expanded first. So the alternatives keep their order.
        for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
          open.push_back(text.substr(0, at) + std::string(*part) + text.substr(close + 1));
          from.push_back(at);
        }
      }
    }
    if (done.size() + open.size() > max_alternatives) {
      throw std::invalid_argument("the braces of the pattern '" + std::string(pattern) +
                                  "' stand for more than 1024 patterns: use fewer braces, or '*'");
    }
  }
  return done;
}

std::vector<std::string> split_names(std::string_view path) {
  std::vector<std::string> names;
  std::size_t start = 0;
  while (start <= path.size()) {
    const std::size_t end = std::min(path.find('/', start), path.size());
    // Doubled slashes vanish. An absolute path keeps its empty first name, so `/a/*` does not match `a/b`.
    if (end > start || (start == 0 && end < path.size())) names.emplace_back(path.substr(start, end - start));
    start = end + 1;
  }
  return names;
}

/// End of the bracket expression that starts at `open` ('['); npos if it is not closed.
std::size_t set_end(std::string_view pattern, std::size_t open) {
  std::size_t i = open + 1;
  if (i < pattern.size() && (pattern[i] == '!' || pattern[i] == '^')) ++i;
  // As in a shell, a ']' at the start is a member of the set.
  if (i < pattern.size() && pattern[i] == ']') ++i;
  while (i < pattern.size() && pattern[i] != ']') i += pattern[i] == '\\' ? 2 : 1;
  return i < pattern.size() ? i : std::string_view::npos;
}

/// Position of the first wildcard that is neither escaped nor unclosed, or npos.
std::size_t first_wildcard(std::string_view text) {
  std::size_t close = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '*' || c == '?' || (c == '[' && set_end(text, i) != std::string_view::npos) ||
        (c == '{' && brace_parts(text, i, close).size() > 1)) {
      return i;
    }
    if (c == '\\') ++i;
  }
  return std::string_view::npos;
}

bool set_contains(std::string_view set, char c) {
  const auto value = static_cast<unsigned char>(c);
  bool negated = false;
  bool found = false;
  std::size_t i = 0;
  if (!set.empty() && (set[0] == '!' || set[0] == '^')) {
    negated = true;
    i = 1;
  }
  const auto take = [&] {
    if (set[i] == '\\' && i + 1 < set.size()) ++i;
    return static_cast<unsigned char>(set[i++]);
  };
  while (i < set.size()) {
    const unsigned char low = take();
    unsigned char high = low;
    if (i + 1 < set.size() && set[i] == '-') {
      ++i;
      high = take();
    }
    found = found || (low <= value && value <= high);
  }
  return found != negated;
}

/// Bytes of the UTF-8 character at the start of `text`; 1 if it is not UTF-8.
std::size_t character_length(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  const std::size_t length = lead >= 0xF0 && lead < 0xF8 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC2 ? 2 : 1;
  if (lead >= 0xF8 || length > text.size()) return 1;
  for (std::size_t i = 1; i < length; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) return 1;
  }
  return length;
}

/// Matches the element of the pattern at `p`, which is not '*', with the text at `t`. Advances both.
bool match_element(std::string_view pattern, std::size_t& p, std::string_view text, std::size_t& t) {
  if (pattern[p] == '?') {
    ++p;
    t += character_length(text.substr(t));
    return true;
  }
  if (pattern[p] == '[') {
    const std::size_t end = set_end(pattern, p);
    if (end != std::string_view::npos) {
      const bool inside = set_contains(pattern.substr(p + 1, end - p - 1), text[t]);
      p = end + 1;
      ++t;
      return inside;
    }
  }
  if (pattern[p] == '\\' && p + 1 < pattern.size()) ++p;
  return pattern[p++] == text[t++];
}

/// Matches one name with the pattern of one name. Greedy: it goes back only to the last '*'.
bool match_name(std::string_view pattern, std::string_view text) {
  if (!text.empty() && text[0] == '.' && !pattern.empty() &&
      (pattern[0] == '*' || pattern[0] == '?' || pattern[0] == '[')) {
    return false;
  }
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p >= pattern.size() || !match_element(pattern, p, text, t)) {
      if (star == std::string_view::npos) return false;
      p = star + 1;
      t = ++star_text;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

/// The positions in `names`, a pattern, that the names of `path` can lead to. Position names.size() is a match.
std::vector<bool> positions_after(const std::vector<std::string>& names, const std::vector<std::string>& path) {
  std::vector<bool> now(names.size() + 1);
  const auto close = [&](std::vector<bool>& set) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (set[i] && names[i] == "**") set[i + 1] = true;
    }
  };
  now[0] = true;
  close(now);
  for (const std::string& name : path) {
    std::vector<bool> next(names.size() + 1);
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!now[i]) continue;
      if (names[i] == "**") {
        // "**" stays where it is and takes one more folder.
        if (name[0] != '.') next[i] = true;
      } else if (match_name(names[i], name)) {
        next[i + 1] = true;
      }
    }
    close(next);
    now = std::move(next);
  }
  return now;
}

}  // namespace

bool has_wildcards(std::string_view pattern) { return first_wildcard(pattern) != std::string_view::npos; }

Glob::Glob(std::string_view pattern) : text_(pattern) {
  if (pattern.size() > max_pattern_bytes) {
    throw std::invalid_argument("the pattern has " + std::to_string(pattern.size()) +
                                " bytes: at most 4096 are allowed");
  }
  for (const std::string& alternative : expand_braces(pattern)) alternatives_.push_back(split_names(alternative));
}

bool Glob::matches(std::string_view path) const {
  const Names names = split_names(path);
  return std::any_of(alternatives_.begin(), alternatives_.end(),
                     [&](const Names& pattern) -> bool { return positions_after(pattern, names).back(); });
}

bool Glob::may_match_below(std::string_view folder) const {
  const Names names = split_names(folder);
  return std::any_of(alternatives_.begin(), alternatives_.end(), [&](const Names& pattern) -> bool {
    const auto positions = positions_after(pattern, names);
    // The last position is a match of the folder itself, which leads to nothing below.
    return std::find(positions.begin(), positions.end() - 1, true) != positions.end() - 1;
  });
}

bool Glob::names_extension() const {
  return std::all_of(alternatives_.begin(), alternatives_.end(), [](const Names& pattern) {
    if (pattern.empty()) return false;
    const std::string_view last = pattern.back();
    const std::size_t dot = last.rfind('.');
    return dot != std::string_view::npos && dot + 1 < last.size() && !has_wildcards(last.substr(dot)) &&
           last.find(']', dot) == std::string_view::npos;
  });
}

PathPattern::PathPattern(std::string_view pattern)
    : glob_(pattern), everything_(pattern == "**"), name_only_(pattern.find('/') == std::string_view::npos) {}

bool PathPattern::matches(std::string_view path) const {
  return everything_ || glob_.matches(name_only_ ? path.substr(path.rfind('/') + 1) : path);
}

GlobParts split_glob(std::string_view pattern) {
  const std::size_t wild = std::min(first_wildcard(pattern), pattern.size());
  const std::size_t slash = pattern.substr(0, wild).rfind('/');
  if (slash == std::string_view::npos) return {"", std::string(pattern)};
  const std::string folder = slash == 0 ? "/" : unescape(pattern.substr(0, slash));
  return {folder, std::string(pattern.substr(slash + 1))};
}

}  // namespace millrace
