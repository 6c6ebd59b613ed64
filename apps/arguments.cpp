#include "apps/arguments.hpp"

#include <algorithm>
#include <filesystem>

#include "io/files/files.hpp"
#include "stages/options.hpp"

namespace millrace {

SplitArguments split_arguments(const std::string& command, const std::vector<std::string>& arguments,
                               std::span<const std::string> own, std::span<const std::string> flags,
                               std::span<const std::string> refused, const std::string& why) {
  const auto has = [](std::span<const std::string> names, const std::string& name) {
    return std::ranges::find(names, name) != names.end();
  };
  SplitArguments split;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto equals = arguments[i].find('=');
    const std::string option = arguments[i].substr(0, equals);
    if (has(refused, option)) throw UsageError(option + " has no effect here, because " + why + "; leave it out");
    if (has(flags, arguments[i])) {
      split.own.emplace_back(option, "");
      continue;
    }
    if (!has(own, option)) {
      split.run.push_back(arguments[i]);
      continue;
    }
    if (equals == std::string::npos && i + 1 == arguments.size())
      throw UsageError(option + " needs a value; `millrace " + command + " --help` shows the syntax");
    split.own.emplace_back(option, equals == std::string::npos ? arguments[++i] : arguments[i].substr(equals + 1));
  }
  return split;
}

std::vector<std::string> words_of_list(const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  for (const char letter : text + ",") {
    if (letter != ',') {
      word += letter;
      continue;
    }
    words.push_back(word);
    word.clear();
  }
  return words;
}

std::string result_file(const std::string& option, const std::string& file, const std::string& extension) {
  const std::filesystem::path path(file);
  std::error_code error;
  // A picture or a package that follows the option by mistake must not be replaced.
  if (path.extension() != extension) throw UsageError(option + " is '" + file + "'; its name must end in " + extension);
  // The file is replaced, so a device such as /dev/null would be lost.
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error))
    throw UsageError(option + " is '" + file + "', which is not a file; name a file");
  if (path.has_parent_path() && !std::filesystem::is_directory(path.parent_path(), error))
    throw UsageError(option + " is '" + file + "', but the folder '" + path.parent_path().string() +
                     "' does not exist; make it first");
  return file;
}

void write_result_file(const std::string& file, const std::string& content) {
  const std::filesystem::path path(file);
  write_durably(path.has_parent_path() ? path.parent_path().string() : ".", path.filename().string(), content);
}

}  // namespace millrace
