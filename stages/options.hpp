#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// An error in an option, a recipe or the command line. The program ends with exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Whether an option determines results, or only how the run computes them.
/// The plan records options that determine results, and a resumed run must have the same values.
enum class Affects { results, run };

/// Minimum and maximum of a numeric option, both allowed.
struct Range {
  double min = -1e300, max = 1e300;
};

/// One option as `millrace stages`, --print-config and the plan show it.
struct OptionInfo {
  std::string name;
  std::string type;  ///< "number", "integer", "bytes", "yes/no", "text", "package", "list"
  std::string default_value;
  std::string help;
  Affects affects = Affects::results;
  std::string on_gpu{};  ///< the default if models run on a GPU; empty: default_value
};

/// Values of one group of options by name, as the user wrote them. A scalar is a list of one.
using OptionValues = std::map<std::string, std::vector<std::string>>;

/// An Options struct shows its members to a visitor, so name, default, range and help are in one place:
///
///     struct Options {
///       double conf = 0.25;
///       void visit(OptionVisitor& v) { v.option("conf", conf, "minimum score of a detection", {0, 1}); }
///     };
class OptionVisitor {
 public:
  virtual ~OptionVisitor() = default;
  void option(std::string_view name, double& value, std::string_view help, Range range = {},
              Affects affects = Affects::results);
  void option(std::string_view name, int& value, std::string_view help, Range range = {},
              Affects affects = Affects::results);
  void option(std::string_view name, bool& value, std::string_view help, Affects affects = Affects::results);
  void option(std::string_view name, std::string& value, std::string_view help, Affects affects = Affects::results);
  void option(std::string_view name, std::vector<std::string>& value, std::string_view help,
              Affects affects = Affects::results);
  /// The folder of a model package. The plan records a fingerprint of its content, not the path.
  void package(std::string_view name, std::string& folder, std::string_view help);
  /// A number of bytes; users write 512, 64k, 64M or 2G.
  void bytes(std::string_view name, std::int64_t& value, std::string_view help, Range range = {},
             Affects affects = Affects::results);
  /// Sets the default on a GPU of an option that was shown before.
  virtual void on_gpu(std::string_view /*name*/, std::string_view /*value*/) {}

 protected:
  /// An option and access to its member.
  /// `parse` sets the member from the values that the user wrote, or throws UsageError.
  struct Access {
    OptionInfo info;
    void (*parse)(void* member, const std::vector<std::string>& written, const std::string& name, Range range);
    void* member;
    Range range;
  };
  /// Called once for each option.
  virtual void visit(const Access& access) = 0;
};

/// The options of this struct. `default_value` is the value in `options`, so the default if none are given.
template <class Options>
std::vector<OptionInfo> describe_options(Options options = {});

/// The defaults, overridden by `values`.
/// Throws UsageError for a value that does not parse or is out of range.
/// Also throws it for an unknown name, and suggests the nearest known one.
/// Messages name an option as `group`.name.
template <class Options>
Options parse_options(std::string_view group, const OptionValues& values);

namespace detail {

class Describe final : public OptionVisitor {
 public:
  std::vector<OptionInfo> found;
  /// Throws std::logic_error if no option of this name was shown.
  void on_gpu(std::string_view name, std::string_view value) override;

 protected:
  void visit(const Access& access) override { found.push_back(access.info); }
};

class Parse final : public OptionVisitor {
 public:
  Parse(std::string_view group, const OptionValues& values) : group_(group), values_(values) {}
  /// Throws UsageError if a value has a name that no option has.
  void check_all_taken() const;

 protected:
  void visit(const Access& access) override;

 private:
  std::string group_;
  const OptionValues& values_;
  std::vector<std::string> names_;
};

}  // namespace detail

template <class Options>
std::vector<OptionInfo> describe_options(Options options) {
  detail::Describe describe;
  options.visit(describe);
  return describe.found;
}

template <class Options>
Options parse_options(std::string_view group, const OptionValues& values) {
  Options options;
  detail::Parse parse(group, values);
  options.visit(parse);
  parse.check_all_taken();
  return options;
}

}  // namespace millrace
