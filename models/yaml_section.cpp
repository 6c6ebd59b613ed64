#include "models/yaml_section.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/nearest.hpp"
#include "models/package.hpp"

namespace millrace {
namespace {

// Some versions of yaml-cpp convert "1e2" or " 7" to whole numbers, and "1" to a boolean.
// So numbers are parsed from the text here.
template <class Number>
std::optional<Number> parse(const YAML::Node& node) {
  if (!node.IsScalar()) return std::nullopt;
  const std::string& text = node.Scalar();
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string shown(const YAML::Node& node) {
  if (node.IsScalar()) return "'" + node.Scalar() + "'";
  if (node.IsSequence()) return "a list of " + std::to_string(node.size());
  return node.IsMap() ? "a mapping" : "nothing";
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string range(int lowest, int highest) { return std::to_string(lowest) + " to " + std::to_string(highest); }

}  // namespace

YamlSection::YamlSection(YAML::Node node, std::string file, std::string prefix)
    : node_(std::move(node)), file_(std::move(file)), prefix_(std::move(prefix)) {
  // yaml-cpp accepts a key that appears twice, and finds only the first.
  std::vector<std::string> seen;
  for (const auto& entry : node_) {
    if (!entry.first.IsScalar()) throw PackageError(file_ + ": " + prefix_ + ": keys must be plain words");
    const std::string& key = entry.first.Scalar();
    if (std::find(seen.begin(), seen.end(), key) != seen.end()) fail(key, "appears twice; remove one");
    seen.push_back(key);
  }
}

void YamlSection::fail(const std::string& key, const std::string& what) const {
  std::string where = file_;
  const YAML::Node value = node_[key];
  // yaml-cpp counts lines from 0.
  if (value && !value.Mark().is_null()) where += ":" + std::to_string(value.Mark().line + 1);
  throw PackageError(where + ": " + prefix_ + key + ": " + what);
}

bool YamlSection::has(const std::string& key) {
  asked_.push_back(key);
  return static_cast<bool>(node_[key]);
}

std::vector<std::string> YamlSection::keys() const {
  std::vector<std::string> present;
  for (const auto& entry : node_) present.push_back(entry.first.Scalar());
  return present;
}

YAML::Node YamlSection::required(const std::string& key, std::string_view expected) {
  if (!has(key)) {
    // A misspelt key is more likely than a forgotten one.
    const std::string near = nearest_name(key, keys());
    fail(key, "is missing; expected " + std::string(expected) +
                  (near.empty() ? "" : " (is '" + near + "' a misspelling of it?)"));
  }
  return node_[key];
}

std::string YamlSection::text(const std::string& key) {
  const YAML::Node value = required(key, "text");
  if (!value.IsScalar() || value.Scalar().empty()) fail(key, "expected text, got " + shown(value));
  return value.Scalar();
}

int YamlSection::number(const std::string& key, int lowest, int highest) {
  const std::string expected = "a whole number, " + range(lowest, highest);
  const YAML::Node value = required(key, expected);
  const auto parsed = parse<int>(value);
  if (!parsed || *parsed < lowest || *parsed > highest) fail(key, "expected " + expected + ", got " + shown(value));
  return *parsed;
}

template <class Real>
Real YamlSection::real(const std::string& key) {
  const YAML::Node value = required(key, "a number");
  const auto parsed = parse<Real>(value);
  if (!parsed || !std::isfinite(*parsed)) fail(key, "expected a number, got " + shown(value));
  return *parsed;
}

YAML::Node YamlSection::sequence(const std::string& key, std::size_t count, std::string_view of_what) {
  const std::string expected =
      "a list of " + (count == 0 ? std::string() : std::to_string(count) + " ") + std::string(of_what);
  const YAML::Node list = required(key, expected);
  if (!list.IsSequence() || list.size() == 0 || (count != 0 && list.size() != count))
    fail(key, "expected " + expected + ", got " + shown(list));
  return list;
}

std::vector<std::string> YamlSection::texts(const std::string& key) {
  std::vector<std::string> values;
  for (const auto& entry : sequence(key, 0, "names")) {
    if (!entry.IsScalar() || entry.Scalar().empty())
      fail(key, "entry " + std::to_string(values.size()) + ": expected a name, got " + shown(entry));
    values.push_back(entry.Scalar());
  }
  return values;
}

std::vector<int> YamlSection::numbers(const std::string& key, std::size_t count, int lowest, int highest) {
  std::vector<int> values;
  const std::string expected = "whole numbers, " + range(lowest, highest);
  for (const auto& entry : sequence(key, count, expected)) {
    const auto parsed = parse<int>(entry);
    if (!parsed || *parsed < lowest || *parsed > highest)
      fail(key, "entry " + std::to_string(values.size()) + ": expected " + expected + ", got " + shown(entry));
    values.push_back(*parsed);
  }
  return values;
}

template <class Real>
std::vector<Real> YamlSection::reals(const std::string& key, std::size_t count) {
  std::vector<Real> values;
  for (const auto& entry : sequence(key, count, "numbers")) {
    const auto parsed = parse<Real>(entry);
    if (!parsed || !std::isfinite(*parsed))
      fail(key, "entry " + std::to_string(values.size()) + ": expected a number, got " + shown(entry));
    values.push_back(*parsed);
  }
  return values;
}

std::size_t YamlSection::entries(const std::string& key) const {
  const YAML::Node value = node_[key];
  return value && value.IsSequence() ? value.size() : 0;
}

template float YamlSection::real(const std::string& key);
template double YamlSection::real(const std::string& key);
template std::vector<float> YamlSection::reals(const std::string& key, std::size_t count);
template std::vector<double> YamlSection::reals(const std::string& key, std::size_t count);

YamlSection YamlSection::section(const std::string& key) {
  const YAML::Node value = required(key, "a mapping");
  if (!value.IsMap()) fail(key, "expected a mapping, got " + shown(value));
  return {value, file_, prefix_ + key + "."};
}

std::vector<YamlSection> YamlSection::sections(const std::string& key, std::size_t most) {
  const YAML::Node list = sequence(key, 0, "mappings");
  if (list.size() > most)
    fail(key, "expected a list of at most " + std::to_string(most) + " mappings, got " + shown(list));
  std::vector<YamlSection> all;
  for (const auto& entry : list) {
    const std::string at = std::to_string(all.size());
    if (!entry.IsMap()) fail(key, "entry " + at + ": expected a mapping, got " + shown(entry));
    all.emplace_back(entry, file_, prefix_ + key + "[" + at + "].");
  }
  return all;
}

std::vector<std::pair<std::string, std::string>> YamlSection::pairs(const std::string& key) {
  const YAML::Node value = required(key, "a mapping");
  if (!value.IsMap() || value.size() == 0) fail(key, "expected a mapping, got " + shown(value));
  std::vector<std::pair<std::string, std::string>> result;
  for (const auto& entry : value) {
    if (!entry.first.IsScalar() || !entry.second.IsScalar())
      fail(key, "expected pairs of text, got " + shown(entry.second));
    result.emplace_back(entry.first.Scalar(), entry.second.Scalar());
  }
  return result;
}

std::size_t YamlSection::index_of(const std::string& key, const std::vector<std::string>& names) {
  const YAML::Node value = required(key, "one of " + joined(names));
  const auto found = value.IsScalar() ? std::find(names.begin(), names.end(), value.Scalar()) : names.end();
  if (found == names.end()) {
    fail(key, "expected one of " + joined(names) + ", got " + shown(value) +
                  (value.IsScalar() ? did_you_mean(value.Scalar(), names) : std::string()));
  }
  return static_cast<std::size_t>(found - names.begin());
}

void YamlSection::refuse(const std::string& key, std::string_view why) {
  // close() would refuse the key too, but without the reason.
  if (has(key)) fail(key, std::string(why));
}

void YamlSection::close() {
  for (const auto& entry : node_) {
    const std::string& key = entry.first.Scalar();
    if (std::find(asked_.begin(), asked_.end(), key) != asked_.end()) continue;
    const std::string near = nearest_name(key, asked_);
    fail(key, near.empty() ? "is not a key of model.yaml; remove it"
                           : "is not a key of model.yaml; did you mean '" + near + "'?");
  }
}

}  // namespace millrace
