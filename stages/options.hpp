#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// Wrong use: an option, recipe or command line that cannot be meant. The program ends with exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Whether an option determines results (then it stands in the plan and may not change on resume) or only how the run
/// is done.
enum class Affects { results, run };

/// Smallest and largest value of a numeric option, both allowed.
struct Range {
  double least = -1e300, most = 1e300;
};

/// One option as `millrace stages`, --print-config and the plan show it.
struct OptionInfo {
  std::string name;
  std::string type;  ///< "number", "integer", "bytes", "yes/no", "text", "package", "list"
  std::string default_value;
  std::string help;
  Affects affects = Affects::results;
  std::string on_gpu{};  ///< the default where models run on a GPU; empty: the same
};

/// Values given for one group of options, as written by the user; a scalar is a list of one.
using OptionValues = std::map<std::string, std::vector<std::string>>;

/// An Options struct shows its members to a visitor: one place for name, default, range and help.
///
///     struct Options {
///       double conf = 0.25;
///       void visit(OptionVisitor& v) { v.option("conf", conf, "least score of a detection", {0, 1}); }
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
  /// The folder of a model package. The plan has what is in it, wherever it lies.
  void package(std::string_view name, std::string& folder, std::string_view help);
  /// A number of bytes; users write 512, 64k, 64M or 2G.
  void bytes(std::string_view name, std::int64_t& value, std::string_view help, Range range = {},
             Affects affects = Affects::results);
  /// The default of an option shown before, where models run on a GPU.
  virtual void on_gpu(std::string_view /*name*/, std::string_view /*value*/) {}

 protected:
  /// Called once an option; `parse` sets the member from what the user wrote and throws UsageError if it cannot.
  struct Access {
    OptionInfo info;
    void (*parse)(void* member, const std::vector<std::string>& written, const std::string& name, Range range);
    void* member;
    Range range;
  };
  virtual void visit(const Access& access) = 0;
};

/// What the options of this struct are, with their defaults; for given options, `default_value` is the value they have.
template <class Options>
std::vector<OptionInfo> describe_options(Options options = {});

/// Defaults overridden by `values`. Throws UsageError for a value that does not parse or is out of range, and for a
/// name that is no option, with the nearest one; `group` stands in the message.
template <class Options>
Options parse_options(std::string_view group, const OptionValues& values);

namespace detail {

class Describe final : public OptionVisitor {
 public:
  std::vector<OptionInfo> found;
  /// Throws std::logic_error where no such option was shown.
  void on_gpu(std::string_view name, std::string_view value) override;

 protected:
  void visit(const Access& access) override { found.push_back(access.info); }
};

class Parse final : public OptionVisitor {
 public:
  Parse(std::string_view group, const OptionValues& values) : group_(group), values_(values) {}
  /// Throws for a value whose name no option took.
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
