#pragma once

#include <yaml-cpp/yaml.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace millrace {

/// Reads one mapping of a model.yaml. The caller asks for each key by name, then close() refuses all other keys.
/// Errors are PackageErrors with file, line, key and the expected value. A missing key is an error too.
class YamlSection {
 public:
  /// `prefix` comes before the keys in messages, e.g. "input.".
  YamlSection(YAML::Node node, std::string file, std::string prefix);

  /// Whether the key exists. This counts as asking for it.
  bool has(const std::string& key);
  /// All keys in the file's order, for a mapping with free keys. This does not count as asking for them.
  std::vector<std::string> keys() const;
  /// Text that is not empty.
  std::string text(const std::string& key);
  /// A whole number within [lowest, highest].
  int number(const std::string& key, int lowest, int highest);
  /// A finite number, float or double.
  template <class Real = float>
  Real real(const std::string& key);
  /// A list of at least one text.
  std::vector<std::string> texts(const std::string& key);
  /// A list of `count` whole numbers within [lowest, highest]; of at least one if `count` is 0.
  std::vector<int> numbers(const std::string& key, std::size_t count, int lowest, int highest);
  /// A list of `count` finite numbers, float or double.
  template <class Real = float>
  std::vector<Real> reals(const std::string& key, std::size_t count);
  /// The number of entries of a list; 0 if the key is missing or no list.
  std::size_t entries(const std::string& key) const;
  /// A mapping inside this one.
  YamlSection section(const std::string& key);
  /// The mappings of a list, at least one and at most `most`.
  std::vector<YamlSection> sections(const std::string& key, std::size_t most);
  /// The pairs of a mapping with free keys, in the file's order; at least one.
  std::vector<std::pair<std::string, std::string>> pairs(const std::string& key);

  /// The value that belongs to the key's word in `choices`.
  template <class Value>
  Value choice(const std::string& key, const std::vector<std::pair<std::string, Value>>& choices) {
    std::vector<std::string> names;
    for (const auto& [name, value] : choices) names.push_back(name);
    return choices[index_of(key, names)].second;
  }

  /// Throws if the key exists, because it has no meaning here. `why` follows "key: " in the message.
  void refuse(const std::string& key, std::string_view why);
  /// Throws for the first key that was not asked for, and suggests the nearest one that was.
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
