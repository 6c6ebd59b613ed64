#include "apps/profile_output.hpp"

#include <algorithm>
#include <cmath>

#include "apps/format.hpp"
#include "apps/page/files.hpp"
#include "apps/page/report_page.hpp"
#include "base/text.hpp"
#include "io/files/source_names.hpp"
#include "run/job.hpp"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json to_json(const ProfileRow& row) {
  constexpr double milliseconds = 1e3;
  const auto of_times = [&](double CallTimes::*time) {
    return row.times ? Json(milliseconds * (*row.times).*time) : Json(nullptr);
  };
  return {{"views", row.views},
          {"stages", row.stages},
          {"package", row.package},
          {"method", row.method},
          {"unit", word_of(row.unit)},
          {"size", row.size},
          {"precision", row.precision},
          {"engine", row.engine},
          {"layout", row.layout.empty() ? Json(nullptr) : Json(row.layout)},
          {"graph", row.graph},
          {"state", row.times ? "ok" : "out of memory"},
          {"inputs", row.real_inputs ? "pictures" : "artificial"},
          {"calls", row.times ? row.times->calls : 0},
          {"ms_median", of_times(&CallTimes::median_s)},
          {"ms_p5", of_times(&CallTimes::p5_s)},
          {"ms_p95", of_times(&CallTimes::p95_s)},
          {"ms_each", row.times ? Json(milliseconds * row.times->median_s / row.size) : Json(nullptr)},
          {"per_s", row.times ? Json(row.rate()) : Json(nullptr)},
          {"memory_bytes", or_null(row.memory_bytes)},
          {"gpu_percent", or_null(row.gpu_percent)},
          {"ratio", or_null(row.ratio)},
          {"optimum", row.optimum}};
}

/// A number with about four digits.
std::string short_number(double value) {
  constexpr double hundred = 99.995, ten = 9.9995, thousand = 999.95;
  return format("%.*f", value >= thousand ? 0 : value >= hundred ? 1 : value >= ten ? 2 : 3, value);
}

/// "-" for a figure that the system does not provide.
template <class Value, class Text>
std::string or_dash(const std::optional<Value>& value, const Text& text) {
  return value ? text(*value) : "-";
}

std::string csv_field(const Json& value) {
  if (value.is_null()) return "";
  std::string text;
  if (value.is_array()) {
    for (const auto& word : value) text += (text.empty() ? "" : " ") + word.get<std::string>();
  } else {
    text = value.is_string() ? value.get<std::string>() : value.dump();
  }
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  return quoted + "\"";
}

}  // namespace

std::string ProfileFigures::add(const std::vector<ProfileRow>& rows) {
  for (const ProfileRow& row : rows) rows_.push_back(to_json(row));
  const bool compared = combinations_.size() > 1;
  const ProfileRow& first = rows.front();
  std::string text = display_name(first.package) + ": " + first.method;
  if (!compared) text += " in " + first.precision + ", " + first.engine;
  if (pictures_.view_names.size() > 1) {
    std::vector<std::string> names;
    for (const auto& view : first.views) names.push_back(display_name(view));
    text += names.size() == 1 ? ", view " : ", views ";
    text += listed(names);
  }
  if (!first.real_inputs) text += ", with artificial inputs";
  const std::string units(words_of(first.unit)), rate = units + "/s";
  text += "\n";
  std::size_t width = 17;  // of the column of names; all tables have the same
  for (const auto& combination : combinations_) width = std::max(width, combination.name.size() + 1);
  const auto padded = [width](std::string name) { return name.append(width - name.size(), ' '); };
  if (compared) text += padded("");
  text += format(" %8s %9s %9s %9s", units.c_str(), "ms", "p5", "p95");
  if (!compared) text += format(" %9s", ("ms/" + std::string(word_of(first.unit))).c_str());
  text += format(" %10s %8s", rate.c_str(), "memory");
  text += compared ? format(" %6s\n", "ratio") : format(" %6s\n", "GPU %");
  for (const ProfileRow& row : rows) {
    if (compared) text += padded(combinations_[row.combination].name);
    text += format("%c%8d", row.optimum ? '*' : ' ', row.size);
    if (!row.times) {
      text += " out of memory\n";
      continue;
    }
    const auto ms = [](double seconds) { return short_number(1e3 * seconds); };
    text += format(" %9s %9s %9s", ms(row.times->median_s).c_str(), ms(row.times->p5_s).c_str(),
                   ms(row.times->p95_s).c_str());
    if (!compared) text += format(" %9s", ms(row.times->median_s / row.size).c_str());
    const auto bytes = [](std::int64_t value) { return readable_bytes(static_cast<double>(value)); };
    text += format(" %10s %8s", short_number(row.rate()).c_str(), or_dash(row.memory_bytes, bytes).c_str());
    text +=
        format(" %6s\n", compared ? or_dash(row.ratio, [](double value) { return format("%.2f", value); }).c_str()
                                  : or_dash(row.gpu_percent, [](int value) { return std::to_string(value); }).c_str());
  }
  text_ += text + "\n";
  return text + "\n";
}

std::string ProfileFigures::page() const {
  return page_of("Millrace profile", text_ + end_of_text(), json(), page_files::profile);
}

std::string ProfileFigures::end_of_text() const {
  std::string text;
  if (!rows_.empty()) text = "* the smallest size within 3 % of the best rate\n";
  if (!complete) text += "stopped: the rows that were not finished are missing\n";
  return text;
}

nlohmann::json ProfileFigures::json() const {
  const Devices& devices = arguments_.run.devices;
  const ResolvedConfig resolved = resolve_for(combinations_.front().config, "", devices);
  nlohmann::json machine = machine_json(devices);
  machine["team"] = resolved.team;
  machine["gpu"] = devices.kind == Devices::Kind::cuda ? nlohmann::json(look_for_gpus().text) : nlohmann::json();
  nlohmann::json compared = nlohmann::json::array();
  for (const auto& combination : combinations_) compared.push_back(combination.name);
  return {{"tool", tool},
          {"machine", std::move(machine)},
          {"pictures", pictures_.found},
          {"seconds", arguments_.seconds},
          {"compared", combinations_.size() > 1 ? compared : nlohmann::json::array()},
          {"complete", complete},
          {"rows", rows_}};
}

std::string ProfileFigures::csv() const {
  std::string text;
  if (rows_.empty()) return text;
  for (const auto& [key, value] : rows_.front().items()) text += (text.empty() ? "" : ",") + key;
  text += "\n";
  for (const auto& row : rows_) {
    std::string line;
    for (const auto& [key, value] : row.items()) line += (key == "views" ? "" : ",") + csv_field(value);
    text += line + "\n";
  }
  return text;
}

}  // namespace millrace
