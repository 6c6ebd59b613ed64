#pragma once

#include <charconv>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace millrace {

/// The arguments of a command that also takes those of `millrace run`.
struct SplitArguments {
  std::vector<std::pair<std::string, std::string>> own;  ///< options of the command with their values
  std::vector<std::string> run;                          ///< the others
};

/// `own` are options with a value, and `flags` options without one. Options in `refused` throw UsageError that says `why`.
/// Throws UsageError if a value is missing.
SplitArguments split_arguments(const std::string& command, const std::vector<std::string>& arguments,
                               std::span<const std::string> own, std::span<const std::string> flags,
                               std::span<const std::string> refused, const std::string& why);

/// The words of a list such as "1,2,4".
std::vector<std::string> words_of_list(const std::string& text);

/// Nothing if the word is not a number from `lowest` to `highest`.
template <class Number>
std::optional<Number> number_of(const std::string& word, Number lowest, Number highest) {
  Number value{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size() || !(value >= lowest && value <= highest))
    return std::nullopt;
  return value;
}

/// Checks the name of a file that an option names for results, before anything is measured: a long measurement would be
/// lost. Throws UsageError.
std::string result_file(const std::string& option, const std::string& file, const std::string& extension);

/// Writes or replaces such a file. Throws StorageError.
void write_result_file(const std::string& file, const std::string& content);

}  // namespace millrace
