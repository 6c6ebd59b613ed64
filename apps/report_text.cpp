#include "apps/report_text.hpp"

#include <algorithm>
#include <optional>
#include <set>

#include "apps/format.hpp"
#include "apps/what_if.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "io/files/source_names.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

/// A number of the report, or nothing if it is null or missing: then it is not known.
std::optional<double> known(const Json& json, const char* key) {
  const auto it = json.find(key);
  return it == json.end() || it->is_null() ? std::nullopt : std::optional(it->get<double>());
}
std::int64_t count(const Json& json, const char* key) { return json.at(key).get<std::int64_t>(); }
double value(const Json& json, const char* key) { return json.at(key).get<double>(); }
std::string word(const Json& json, const char* key) { return json.at(key).get<std::string>(); }

std::string duration(double s) {
  if (s < 0.9995) return format("%.0f ms", 1000 * s);
  if (s < 120) return format("%.1f s", s);
  if (s < 7200) return format("%.1f min", s / 60);
  return format("%.1f h", s / 3600);
}

/// Milliseconds in at most six characters up to 999,999 ms: 0.05, 38.80, 2349. "-" for no time, or an unknown one.
std::string ms_text(const std::optional<double>& ms) {
  if (ms.value_or(0) <= 0) return "-";
  return format(*ms < 99.995 ? "%.2f" : *ms < 999.95 ? "%.1f" : "%.0f", *ms);
}

/// "12 %", or "-" for a share that is not known.
std::string percent_text(const std::optional<double>& share) { return share ? format("%.0f %%", 100 * *share) : "-"; }

/// A row has 79 columns. A value that is longer than its column moves the rest of the row to the right.
std::string table_row(const Json& row, const std::string& label) {
  std::string unit = word(row, "counts");
  const std::int64_t items = count(row, "items");
  // "batches" loses "es", other units lose "s".
  if (items == 1 && !unit.empty()) unit.resize(unit.size() - (unit == "batches" ? 2 : 1));
  // Shares of one time, so that they can be compared: util, no core and starved.
  const auto utilisation = known(row, "utilisation");
  auto no_core = known(row, "no_core");
  if (no_core) no_core = utilisation ? std::optional(*no_core * *utilisation) : std::nullopt;
  std::string text = format("  %-14s %9s %-8s", label.c_str(), grouped(items).c_str(), unit.c_str());
  text += format(" %7s %7s %6s %6s", percent_text(utilisation).c_str(), percent_text(no_core).c_str(),
                 ms_text(known(row, "p50_ms")).c_str(), ms_text(known(row, "p95_ms")).c_str());
  // Rows that cannot starve have no such key. Then the queue means nothing either.
  const auto starved = known(row, "starved");
  const auto queue = starved ? known(row, "mean_queue") : std::nullopt;
  text += format(" %7s %5s", percent_text(starved).c_str(), queue ? format("%.1f", *queue).c_str() : "-");
  return text + "\n";
}

std::string stage_table(const Json& window) {
  std::string text = format("  %-14s %9s %-8s %7s %7s %6s %6s %7s %5s\n", "stage", "items", "", "util", "no core",
                            "p50 ms", "p95 ms", "starved", "queue");
  for (const Json& resource : window.at("resources")) {
    // A stage or a resource that had nothing to do needs no row.
    if (count(resource, "items") == 0) continue;
    const Json parts = resource.value("parts", Json());
    // "workers x4": several threads.
    const std::int64_t servers = count(resource, "concurrency");
    text += table_row(resource, word(resource, "name") + (servers <= 1 ? "" : " x" + std::to_string(servers)));
    for (const Json& part : parts) text += table_row(part, "  " + word(part, "name"));
  }
  return text;
}

std::string headline(const Json& items, std::int64_t failed) {
  const std::int64_t planned = count(items, "planned");
  const std::int64_t resumed = count(items, "resumed");
  const bool complete = items.at("plan_complete").get<bool>();
  std::string text = grouped(count(items, "ok")) + " ok, " + grouped(failed) + " failed of " +
                     count_of(planned, "picture") + (complete ? "" : " known so far") + ", " +
                     count_of(count(items, "objects"), "object");
  if (resumed > 0) {
    text += " (" + grouped(resumed) + (resumed == 1 ? " was" : " were") + " done before" +
            (complete && resumed == planned ? "; nothing was left to do)" : ")");
  }
  return text;
}

// The figures of NVIDIA's driver, or nothing if it gives none.
std::string gpu_text(const Json& gpu) {
  std::string said;
  const auto add = [&](const char* key, const auto& text) {
    if (const auto figure = known(gpu, key)) said += (said.empty() ? "" : ", ") + text(*figure);
  };
  add("mean_utilisation", [](double share) { return format("some kernel ran %.0f %% of the time", 100 * share); });
  add("peak_memory_bytes", [](double bytes) { return "up to " + readable_bytes(bytes) + " used"; });
  add("mean_sm_mhz", [](double mhz) { return format("%.0f MHz", mhz); });
  add("mean_power_w", [](double watt) { return format("%.0f W", watt); });
  add("peak_temperature_c", [](double degrees) { return format("up to %.0f degrees", degrees); });
  add("heat_limited", [](double share) { return format("clock lowered by heat %.0f %% of the time", 100 * share); });
  add("power_limited", [](double share) { return format("by the power limit %.0f %%", 100 * share); });
  return said.empty() ? "" : "  GPU " + word(gpu, "bus") + ": " + said + "\n";
}

// The rate, the table and the lines below it.
std::string figures(const Json& report) {
  const Json& window = report.at("run_window");
  const double wall_s = value(window, "wall_s");
  const auto others = known(report.at("verdict"), "other_cores");
  std::string text = format("  %.2f pictures/s over %s; loading %s and warm-up %s before that\n",
                            value(window, "pictures_per_s"), duration(wall_s).c_str(),
                            duration(value(report, "load_s")).c_str(), duration(value(report, "warm_up_s")).c_str());
  // Only with a GPU: there, the start can take longer than a short run. Reports of earlier versions do not have it.
  if (report.contains("start") && value(report["start"], "planning_s") > 0) {
    const Json &start = report["start"], &lane = start.at("slowest_lane");
    text += format("  start: streams %s, memory plan %s, first calls %s, timing %s\n",
                   duration(value(start, "streams_s")).c_str(), duration(value(start, "planning_s")).c_str(),
                   duration(value(lane, "first_calls_s")).c_str(), duration(value(lane, "timing_s")).c_str());
  }
  // Short runs are mostly filling and draining. The rate in between tells more there.
  const auto steady = known(window, "steady_pictures_per_s");
  if (steady && *steady >= 1.05 * value(window, "pictures_per_s")) {
    text += format("  filling the pipeline took %s and draining it %s; in between, it made %.2f pictures/s\n",
                   duration(value(window, "fill_s")).c_str(), duration(value(window, "drain_s")).c_str(), *steady);
  }
  // Without it, the run measured nothing but its rate.
  if (!window.at("source").is_null()) {
    text += "\n" + stage_table(window);
    text += format("  source without credits %s of %s; cores: %.1f of %.1f used%s\n",
                   duration(value(window.at("source"), "without_credits_s")).c_str(), duration(wall_s).c_str(),
                   value(window, "cpu_s") / wall_s, value(window, "cores"),
                   others ? format(", %.1f by other programs", *others).c_str() : "");
  }
  for (const Json& gpu : report.at("gpus")) text += gpu_text(gpu);
  text += format("  read %s/s, results written %s/s\n", readable_bytes(value(report, "read_bytes") / wall_s).c_str(),
                 readable_bytes(value(report, "written_bytes") / wall_s).c_str());
  std::set<std::string> compiled;  // each GPU loads a package of its own
  for (const Json& load : report.at("models").at("loads")) {
    const std::string variant = word(load, "variant");
    if (!variant.empty()) compiled.insert("  compiled " + word(load, "package") + ": " + variant + "\n");
  }
  for (const auto& line : compiled) text += line;
  return text;
}

}  // namespace

std::string wrapped(const std::string& text, int columns, const std::string& indent) {
  std::string out;
  std::size_t start = 0;
  const auto width = static_cast<std::size_t>(std::max(columns - static_cast<int>(indent.size()), 40));
  while (start < text.size()) {
    std::size_t length = text.size() - start;
    if (length > width) {
      auto space = text.rfind(' ', start + width);
      // A number and its percent sign stay on one line.
      if (space != std::string::npos && space > start && text[space + 1] == '%') space = text.rfind(' ', space - 1);
      length = space != std::string::npos && space > start ? space - start : width;
    }
    out += (out.empty() ? "" : "\n") + indent + text.substr(start, length);
    start += length;
    while (start < text.size() && text[start] == ' ') ++start;
  }
  return out + "\n";
}

std::string to_text(const Json& report, const std::string& output_folder, int columns, bool colour) {
  const char* bold = colour ? "\033[1m" : "";
  const char* plain = colour ? "\033[0m" : "";
  const Json& items = report.at("items");
  const Json& window = report.at("run_window");
  const std::string run = word(report, "run");
  std::int64_t failed = 0;
  for (const Json& of_reason : items.at("failed")) failed += of_reason.get<std::int64_t>();
  std::string text = std::string(bold) + headline(items, failed) + plain + "\n";
  for (const auto& [reason, of_reason] : items.at("failed").items())
    text += "  failed, " + reason + ": " + grouped(of_reason.get<std::int64_t>()) + "\n";
  if (const std::string left_out = report.at("input").value("left_out", ""); !left_out.empty())
    text += wrapped("skipped: " + left_out, columns, "  ");
  // If everything was done before, there is no time to report.
  if (count(window, "committed") > 0 && value(window, "wall_s") > 0) {
    text += figures(report);
    std::string sentence = wrapped(word(report.at("verdict"), "sentence"), columns, "");
    sentence.insert(sentence.size() - 1, plain);  // before the newline, so that bold ends on this line
    text += "\n" + std::string(bold) + sentence;
    constexpr std::size_t best = 4;
    constexpr double worth_it = 0.03;
    if (const Json changes = report.value("what_if", Json()); !changes.is_null())
      if (const std::string rows = what_if_text(changes, best, worth_it); !rows.empty()) text += "\n" + rows;
    if (const Json prediction = report.value("prediction", Json()); !prediction.is_null())
      text += "\n" + wrapped("an earlier attempt " + prediction_text(prediction), columns, "  ");
  }
  if (word(report, "state") == "failed") text += wrapped("failed: " + word(report, "error"), columns, "  ");
  for (const Json& note : report.at("notes")) text += wrapped("note: " + note.get<std::string>(), columns, "  ");
  for (const auto& [name, reduced] : report.at("reduced").items()) {
    for (const Json& sentence : reduced.at("summary"))
      text += wrapped(name + ": " + sentence.get<std::string>(), columns, "  ");
  }
  const std::string folder = display_name(output_folder);
  text += "\nresults  " + folder + "/segments";
  text += word(report, "state") == "stopped" ? "; the same command completes the .part files\n" : "\n";
  for (const Json& name : report.value("side_outputs", Json::array()))
    text += "         " + folder + "/" + name.get<std::string>() + "\n";
  for (const Json& reduced : report.at("reduced")) text += "         " + folder + "/" + word(reduced, "file") + "\n";
  if (failed > 0) {
    // errors.jsonl has the failures of one attempt only; the counts are those of all attempts.
    const std::int64_t failed_now = items.value("failed_in_this_attempt", std::int64_t{0});
    const std::string runs = folder + "/runs/";
    if (failed_now > 0) text += "errors   " + runs + run + "/errors.jsonl\n";
    if (failed_now < failed) {
      text +=
          (failed_now > 0 ? "         " : "errors   ") + runs + "*/errors.jsonl: failed pictures of earlier attempts\n";
    }
  }
  text += "report   " + folder + "/runs/" + run + "/report.json\n";
  return text;
}

}  // namespace millrace
