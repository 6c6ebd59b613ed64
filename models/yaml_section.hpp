#pragma once

#include <yaml-cpp/yaml.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

/// Reads one mapping of a model.yaml. Each key is asked for by name; close() refuses the keys that nobody asked for.
/// All functions throw PackageError with file, line, key and what was expected.
class YamlSection {
 public:
  /// `prefix` is put before the keys in messages, e.g. "input.".
  YamlSection(YAML::Node node, std::string file, std::string prefix);

  bool has(const std::string& key);
  /// All keys, in the file's order: of a mapping whose keys are free.
  std::vector<std::string> keys() const;
  std::string text(const std::string& key);
  /// A whole number within [lowest, highest].
  int number(const std::string& key, int lowest, int highest);
  /// A finite number.
  float real(const std::string& key);
  std::vector<std::string> texts(const std::string& key);
  /// Whole numbers within [lowest, highest]; `count` of them, or any number but none when `count` is 0.
  std::vector<int> numbers(const std::string& key, std::size_t count, int lowest, int highest);
  /// `count` finite numbers.
  std::vector<float> reals(const std::string& key, std::size_t count);
  /// A mapping inside this one.
  YamlSection section(const std::string& key);
  /// Pairs of a mapping with free keys, in the file's order.
  std::vector<std::pair<std::string, std::string>> pairs(const std::string& key);

  /// The value that `key` names among `choices`.
  template <class Value>
  Value choice(const std::string& key, const std::vector<std::pair<std::string, Value>>& choices) {
    std::vector<std::string> names;
    for (const auto& [name, value] : choices) names.push_back(name);
    return choices[index_of(key, names)].second;
  }

  /// Refuses a key that means nothing here; `why` completes "key: ... ".
  void refuse(const std::string& key, std::string_view why);
  /// Refuses every key that was not asked for, and suggests the nearest one that was.
  void close();

  /// Throws PackageError for this key.
  [[noreturn]] void fail(const std::string& key, const std::string& what) const;

 private:
  YAML::Node required(const std::string& key, std::string_view expected);
  std::size_t index_of(const std::string& key, const std::vector<std::string>& names);
  YAML::Node sequence(const std::string& key, std::size_t count, std::string_view of_what);

  YAML::Node node_;
  std::string file_, prefix_;
  std::vector<std::string> asked_;
};

}  // namespace millrace
