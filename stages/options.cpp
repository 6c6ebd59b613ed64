#include "stages/options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/nearest.hpp"
#include "base/text.hpp"

namespace millrace {
namespace {

using Written = std::vector<std::string>;

// A scalar is a list of one value.
const std::string& one(const Written& written, const std::string& name) {
  if (written.size() != 1) {
    throw UsageError(name + " takes one value, but was given " + std::to_string(written.size()));
  }
  return written.front();
}

// The shortest text that reads back as the same number, in any locale.
std::string number_text(double value) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return {text, end};
}

/// A bound as users write it: 2000000000 and not 2e+09.
std::string bound_text(double value) {
  const bool whole = std::trunc(value) == value && std::abs(value) < 1e15;
  return whole ? std::to_string(static_cast<std::int64_t>(value)) : number_text(value);
}

std::string bound_of_bytes(double value) {
  const std::string text = option_bytes(static_cast<std::int64_t>(value));
  return text.size() <= 5 ? text : bound_text(value);  // a number such as 4e9 has no short form in powers of 1024
}

void check_range(double value, Range range, const std::string& name, const std::string& written,
                 std::string (*bound)(double) = bound_text) {
  if (value >= range.min && value <= range.max) return;
  std::string allowed =
      // 1e300 is the default of Range: no maximum.
      range.max >= 1e300 ? "at least " + bound(range.min) : "between " + bound(range.min) + " and " + bound(range.max);
  throw UsageError(name + " is " + written + "; it must be " + allowed);
}

template <class T>
T number(const std::string& text, const std::string& name, const char* what) {
  T value{};
  // from_chars reads the same text in every locale.
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) {
    throw UsageError(name + " is '" + text + "'; it must be " + what);
  }
  return value;
}

void parse_double(void* member, const Written& written, const std::string& name, Range range) {
  const std::string& text = one(written, name);
  const auto value = number<double>(text, name, "a number");
  // from_chars accepts inf and nan.
  if (!std::isfinite(value)) throw UsageError(name + " is '" + text + "'; it must be a finite number");
  check_range(value, range, name, text);
  *static_cast<double*>(member) = value;
}

void parse_int(void* member, const Written& written, const std::string& name, Range range) {
  const std::string& text = one(written, name);
  const int value = number<int>(text, name, "a whole number");
  check_range(value, range, name, text);
  *static_cast<int*>(member) = value;
}

void parse_bytes(void* member, const Written& written, const std::string& name, Range range) {
  const std::string& text = one(written, name);
  std::string digits = text;
  double unit = 1;
  if (!digits.empty()) {
    const auto letter = std::string_view("kMGT").find(digits.back() == 'K' ? 'k' : digits.back());
    if (letter != std::string_view::npos) {
      unit = std::pow(1024.0, static_cast<double>(letter + 1));
      digits.pop_back();
    }
  }
  // A double, so that users can write 1.5G.
  const double value = number<double>(digits, name, "a number of bytes such as 512M or 2G") * unit;
  check_range(value, range, name, text, bound_of_bytes);
  // The value must fit into int64_t, also if the option has no range.
  if (!(value >= 0 && value < 9e18))
    throw UsageError(name + " is '" + text + "'; it must be a size of memory such as 512M or 2G");
  *static_cast<std::int64_t*>(member) = static_cast<std::int64_t>(value);
}

void parse_bool(void* member, const Written& written, const std::string& name, Range /*range*/) {
  const std::string& text = one(written, name);
  if (text == "true" || text == "yes" || text == "on" || text == "1") {
    *static_cast<bool*>(member) = true;
  } else if (text == "false" || text == "no" || text == "off" || text == "0") {
    *static_cast<bool*>(member) = false;
  } else {
    throw UsageError(name + " is '" + text + "'; it must be yes or no");
  }
}

void parse_text(void* member, const Written& written, const std::string& name, Range /*range*/) {
  *static_cast<std::string*>(member) = one(written, name);
}

void parse_list(void* member, const Written& written, const std::string& /*name*/, Range /*range*/) {
  *static_cast<std::vector<std::string>*>(member) = written;
}

std::string joined(const std::vector<std::string>& list) {
  std::string text;
  for (const auto& entry : list) text += (text.empty() ? "" : ",") + entry;
  return text;
}

}  // namespace

void OptionVisitor::option(std::string_view name, double& value, std::string_view help, Range range, Affects affects) {
  visit({{std::string(name), "number", number_text(value), std::string(help), affects}, parse_double, &value, range});
}

void OptionVisitor::option(std::string_view name, int& value, std::string_view help, Range range, Affects affects) {
  visit({{std::string(name), "integer", std::to_string(value), std::string(help), affects}, parse_int, &value, range});
}

void OptionVisitor::option(std::string_view name, bool& value, std::string_view help, Affects affects) {
  visit({{std::string(name), "yes/no", value ? "yes" : "no", std::string(help), affects}, parse_bool, &value, {}});
}

void OptionVisitor::option(std::string_view name, std::string& value, std::string_view help, Affects affects) {
  visit({{std::string(name), "text", value, std::string(help), affects}, parse_text, &value, {}});
}

void OptionVisitor::option(std::string_view name, std::vector<std::string>& value, std::string_view help,
                           Affects affects) {
  visit({{std::string(name), "list", joined(value), std::string(help), affects}, parse_list, &value, {}});
}

void OptionVisitor::package(std::string_view name, std::string& folder, std::string_view help) {
  visit({{std::string(name), "package", folder, std::string(help), Affects::results}, parse_text, &folder, {}});
}

void OptionVisitor::bytes(std::string_view name, std::int64_t& value, std::string_view help, Range range,
                          Affects affects) {
  visit({{std::string(name), "bytes", option_bytes(value), std::string(help), affects}, parse_bytes, &value, range});
}

namespace detail {

void Describe::on_gpu(std::string_view name, std::string_view value) {
  for (OptionInfo& info : found) {
    if (info.name == name) {
      info.on_gpu = value;
      return;
    }
  }
  throw std::logic_error("'" + std::string(name) +
                         "' has a default on GPUs, but no option of that name was shown before");
}

void Parse::visit(const Access& access) {
  // For check_all_taken(), which runs after the last option.
  names_.push_back(access.info.name);
  const auto given = values_.find(access.info.name);
  if (given != values_.end()) {
    access.parse(access.member, given->second, group_ + "." + access.info.name, access.range);
  }
}

void Parse::check_all_taken() const {
  for (const auto& [name, written] : values_) {
    if (std::find(names_.begin(), names_.end(), name) != names_.end()) continue;
    throw UsageError(group_ + "." + name + " is no option" +
                     did_you_mean(name, names_, "`millrace stages` lists all options", group_ + "."));
  }
}

}  // namespace detail

}  // namespace millrace
