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

/// What asking for the next element of an input gives.
enum class Step {
  item,
  idle,  ///< nothing came for the time asked, more may come; said once, then the next call waits for it
  end,
};

/// When a list that stays open counts as idle.
struct IdleRule {
  std::chrono::nanoseconds after = std::chrono::seconds(10);
  /// A steady clock; moved by hand in tests.
  std::function<std::chrono::nanoseconds()> clock = [] { return std::chrono::steady_clock::now().time_since_epoch(); };
};

/// Lines of a file, pipe or terminal, of bounded length, without their end. A last line without end counts.
class LineReader {
 public:
  struct Options {
    std::string name;  ///< for messages
    char delimiter = '\n';
    std::size_t limit_bytes;       ///< of one line
    std::optional<IdleRule> idle;  ///< never idle where not given
  };

  /// Opens a file, which should be a regular one: opening a pipe waits for its writer. Throws InputError when that
  /// fails.
  LineReader(const std::string& path, Options options);
  /// Reads an open descriptor, which stays open; one that is closed reads as empty. `stop` ends a wait.
  LineReader(int descriptor, Options options, std::stop_token stop = {});
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;
  ~LineReader();

  /// Throws InputError with name and line number when a line is too long or reading fails. End also when stopped.
  Step next(std::string& line);
  /// Number of the line last given, from 1.
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
  std::string view;  ///< empty: by pattern
  std::optional<std::vector<PromptBox>> boxes;
  std::int64_t line = 0;  ///< where it starts, from 1
};

/// A list of pictures, read as a stream. Malformed content is an InputError with name and line.
class ItemList {
 public:
  virtual ~ItemList() = default;
  virtual Step next(ListedItem& item) = 0;
};

/// One path a line, any bytes but the delimiter; empty lines are passed over, and so is a byte order mark. A carriage
/// return at the end of a line is dropped (it is kept between NULs).
std::unique_ptr<ItemList> text_list(std::unique_ptr<LineReader> lines, bool nul_separated);

/// A CSV manifest (RFC 4180): a header row with `path` and optionally `view` and `boxes`; other columns are passed
/// over. `boxes` holds JSON, `[[x, y, width, height], [x, y, width, height, class], ...]`; an empty field means none
/// given.
std::unique_ptr<ItemList> csv_manifest(std::unique_ptr<LineReader> lines);

/// A JSONL manifest: {"path": ..., "path_b64": ..., "view": ..., "boxes": [...]}; path_b64 (exact bytes) wins over
/// path. Other keys are passed over.
std::unique_ptr<ItemList> jsonl_manifest(std::unique_ptr<LineReader> lines);

inline constexpr std::size_t list_line_limit = 64 << 10;
inline constexpr std::size_t manifest_line_limit = 16 << 20;

}  // namespace millrace
