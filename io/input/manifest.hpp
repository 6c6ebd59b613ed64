#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "io/input/item.hpp"

namespace millrace {

/// The result of asking an input for its next element.
enum class Step {
  item,
  idle,  ///< nothing came for IdleRule::after, but more may come; the next call waits without limit
  end,
};

/// When a list that stays open counts as idle.
struct IdleRule {
  std::chrono::nanoseconds after = std::chrono::seconds(10);
  /// A steady clock. Tests move it by hand.
  std::function<std::chrono::nanoseconds()> clock = [] { return std::chrono::steady_clock::now().time_since_epoch(); };
};

/// Lines of a file, pipe or terminal, of limited length and without their delimiter.
/// The last line needs no delimiter.
class LineReader {
 public:
  struct Options {
    std::string name;  ///< for messages
    char delimiter = '\n';
    std::size_t limit_bytes;       ///< maximum for one line
    std::optional<IdleRule> idle;  ///< not given: never idle
  };

  /// Opens a file, which should be a regular one: opening a pipe waits for its writer.
  /// Throws InputError if that fails.
  LineReader(const std::string& path, Options options);
  /// Reads an open descriptor and leaves it open. A closed descriptor reads as empty. `stop` ends a wait.
  LineReader(int descriptor, Options options, std::stop_token stop = {});
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader();

  /// The next line; `end` also when stopped.
  /// Throws InputError, with name and line number, if a line is too long or reading fails.
  Step next(std::string& line);
  /// Number of the last line given, from 1.
  std::int64_t line_number() const { return line_number_; }
  /// "'list.txt' line 12", for messages.
  std::string where() const;

 private:
  void fill();
  Step await(std::chrono::nanoseconds deadline);
  bool take_line(std::string& line);

  Options options_;
  int descriptor_;
  bool owned_;
  int wake_ = -1;  // becomes readable when stop is requested
  std::stop_token stop_;
  std::optional<std::stop_callback<std::function<void()>>> wake_on_stop_;
  std::string buffer_;
  std::size_t start_ = 0;     // of the line being read
  std::size_t searched_ = 0;  // no delimiter before here
  std::int64_t line_number_ = 0;
  bool ended_ = false, idle_told_ = false;
};

/// One line of a list or manifest.
struct ListedItem {
  std::string path;  ///< bytes as listed
  std::string view;  ///< empty: the patterns decide
  std::optional<std::vector<PromptBox>> boxes;
  std::int64_t line = 0;  ///< number of its first line, from 1
};

/// A list of pictures, read as a stream. Malformed content throws InputError with name and line.
class ItemList {
 public:
  virtual ~ItemList() = default;
  virtual Step next(ListedItem& item) = 0;
};

/// One path a line, of any bytes but the delimiter. Empty lines are skipped.
/// Unless NULs separate the list, a byte order mark and a carriage return at the end of a line are dropped.
std::unique_ptr<ItemList> text_list(std::unique_ptr<LineReader> lines, bool nul_separated);

/// A CSV manifest (RFC 4180) with a header row: `path`, and optionally `view` and `boxes`.
/// `boxes` contains JSON, `[[x, y, width, height], [x, y, width, height, class], ...]`; an empty field: none given.
/// Other columns are ignored, but `box`, `bbox`, `bboxes` and `views` are refused.
std::unique_ptr<ItemList> csv_manifest(std::unique_ptr<LineReader> lines);

/// A JSONL manifest: {"path": ..., "path_b64": ..., "view": ..., "boxes": [...]}.
/// `path_b64` (exact bytes) overrides `path`. Other keys are ignored or refused as in a CSV manifest.
std::unique_ptr<ItemList> jsonl_manifest(std::unique_ptr<LineReader> lines);

/// Maximum bytes of a line in a text list, and of a row in a manifest.
inline constexpr std::size_t list_line_limit = 64 << 10;
inline constexpr std::size_t manifest_line_limit = 16 << 20;

}  // namespace millrace
