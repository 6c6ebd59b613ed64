#include <cstdint>
#include <map>

#include "base/json.hpp"
#include "base/text.hpp"
#include "io/reducers/reducer_entry.hpp"

namespace millrace {

/// Failed pictures by view and reason.
class Failures {
 public:
  static ReducerEntry entry() { return {"failures", "failed pictures by view and reason", ".csv", reduce}; }

 private:
  static Reduced reduce(const CommittedLines& lines) {
    std::map<std::string, std::map<std::string, std::int64_t>> views;
    lines.for_each([&](const nlohmann::json& line) {
      if (line.at("state") == "failed") ++views[line.at("view")][line.at("reason")];
    });
    Reduced reduced{"view,reason,pictures\n", {}};
    for (const auto& [view, reasons] : views) {
      std::int64_t failed = 0;
      std::string list;
      for (const auto& [reason, count] : reasons) {
        // Names of views may hold a comma or a quote.
        reduced.content += nlohmann::json(view).dump() + "," + reason + "," + std::to_string(count) + "\n";
        list += (list.empty() ? "" : ", ") + grouped(count) + " " + reason;
        failed += count;
      }
      reduced.summary.push_back(count_of(failed, "picture") + " of view " + view + " failed: " + list);
    }
    return reduced;
  }
};

template ReducerEntry reducer_entry<Failures>();

}  // namespace millrace
