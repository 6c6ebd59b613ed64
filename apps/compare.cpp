#include "apps/compare.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string_view>

#include "apps/format.hpp"
#include "apps/report_text.hpp"
#include "apps/what_if.hpp"
#include "base/text.hpp"
#include "io/files/base64.hpp"
#include "io/files/json_writer.hpp"
#include "io/files/source_names.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;
using Values = std::map<std::string, std::string>;

/// Settings by name ("gate.frames") of the text that Settings::print() makes. Views are one value.
Values settings_of(const std::string& text) {
  Values settings;
  std::string group;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    line = line.substr(0, line.rfind("  # "));
    line = line.substr(0, line.find_last_not_of(' ') + 1);
    const auto name_begin = line.find_first_not_of(' ');
    if (name_begin == std::string_view::npos) continue;
    if (line.substr(name_begin).starts_with("- ")) {
      settings[group] += (settings[group].empty() ? "" : ", ") + std::string(line.substr(name_begin + 2));
      continue;
    }
    const auto colon = line.find(':', name_begin);
    if (colon == std::string_view::npos) continue;
    std::string name(line.substr(name_begin, colon - name_begin));
    const auto value = line.find_first_not_of(' ', colon + 1);
    if (value == std::string_view::npos) {
      group = name;
    } else {
      settings[name_begin == 0 ? name : group + "." + name] = std::string(line.substr(value));
    }
  }
  return settings;
}

Values machine_of(const Json& run) {
  Values machine;
  const Json json = run.value("machine", Json());
  if (!json.is_object()) return machine;
  for (const auto& [key, value] : json.items())
    machine[key] = value.is_string() ? value.get<std::string>() : value.dump();
  return machine;
}

/// [{"name", "first", "second"}] of values that differ; null where an attempt has no such value.
Json differences(const Values& first, const Values& second) {
  std::set<std::string> names;
  for (const auto& [name, value] : first) names.insert(name);
  for (const auto& [name, value] : second) names.insert(name);
  const auto value_of = [](const Values& values, const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? Json() : Json(found->second);
  };
  Json all = Json::array();
  for (const auto& name : names) {
    const Json a = value_of(first, name), b = value_of(second, name);
    if (a != b) all.push_back({{"name", name}, {"first", a}, {"second", b}});
  }
  return all;
}

/// A number of the report at this path, or null.
Json number_at(const Json& report, const Json::json_pointer& path) {
  const Json value = report.contains(path) ? report.at(path) : Json();
  return value.is_number() ? value : Json();
}

Json ratio(const Json& first, const Json& second) {
  if (first.is_null() || second.is_null() || first.get<double>() <= 0) return nullptr;
  return second.get<double>() / first.get<double>();
}

Json run_json(const Attempt& attempt, const Json& run) {
  const Json& report = attempt.report;
  const Json wall_s = number_at(report, "/run_window/wall_s"_json_pointer);
  const Json committed = number_at(report, "/run_window/committed"_json_pointer);
  const Json cpu_s = number_at(report, "/run_window/cpu_s"_json_pointer);
  const auto each = [](const Json& sum, const Json& of) {
    return sum.is_null() || of.is_null() || of.get<double>() <= 0 ? Json() : Json(sum.get<double>() / of.get<double>());
  };
  return {{"output", to_utf8_lossy(attempt.output)},
          {"run", report.value("run", "")},
          {"state", report.value("state", "")},
          {"tool", run.contains("tool") && run["tool"].is_string() ? run["tool"] : Json()},
          {"pictures", committed},
          {"wall_s", wall_s},
          {"load_s", number_at(report, "/load_s"_json_pointer)},
          {"pictures_per_s", number_at(report, "/run_window/pictures_per_s"_json_pointer)},
          {"steady_pictures_per_s", number_at(report, "/run_window/steady_pictures_per_s"_json_pointer)},
          {"cpu_s_per_picture", each(cpu_s, committed)},
          {"cores_used", each(cpu_s, wall_s)},
          {"cores", number_at(report, "/run_window/cores"_json_pointer)},
          {"other_cores", number_at(report, "/verdict/other_cores"_json_pointer)},
          {"read_bytes", number_at(report, "/read_bytes"_json_pointer)},
          {"written_bytes", number_at(report, "/written_bytes"_json_pointer)},
          {"verdict", report.contains("/verdict/sentence"_json_pointer) ? report["verdict"]["sentence"] : Json()}};
}

/// Rows of the stage table by name, in the order of the report. A part has the name of its row before it.
std::vector<std::pair<std::string, Json>> rows_of(const Json& report) {
  std::vector<std::pair<std::string, Json>> rows;
  const auto resources = report.find("run_window");
  if (resources == report.end()) return rows;
  for (const Json& resource : resources->value("resources", Json::array())) {
    const std::string name = resource.value("name", "");
    rows.emplace_back(name, resource);
    for (const Json& part : resource.value("parts", Json::array())) {
      const std::string own = part.value("name", "");
      if (own != name) rows.emplace_back(own, part);
    }
  }
  return rows;
}

Json stages_json(const Json& first, const Json& second) {
  const auto a = rows_of(first), b = rows_of(second);
  const auto figures = [](const std::vector<std::pair<std::string, Json>>& rows, const std::string& name) {
    const auto row = std::ranges::find(rows, name, &std::pair<std::string, Json>::first);
    if (row == rows.end() || row->second.value("items", 0) == 0) return Json();
    Json kept = Json::object();
    for (const char* key : {"items", "p50_ms", "p95_ms", "utilisation", "starved", "core_s"})
      kept[key] = row->second.value(key, Json());
    return kept;
  };
  std::vector<std::string> names;
  for (const auto& rows : {a, b}) {
    for (const auto& [name, row] : rows)
      if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  Json stages = Json::array();
  for (const auto& name : names) {
    const Json of_first = figures(a, name), of_second = figures(b, name);
    if (of_first.is_null() && of_second.is_null()) continue;
    stages.push_back({{"name", name}, {"first", of_first}, {"second", of_second}});
  }
  return stages;
}

Json results_json(const ResultsComparison& results) {
  const bool any = results.pairs > 0;
  Json worst = Json::array();
  for (const PictureDifference& it : results.worst) {
    Json picture{{"path", to_utf8_lossy(it.first.path)},
                 {"lowest_iou", it.lowest_iou},
                 {"objects_only_in_first", it.only_first},
                 {"objects_only_in_second", it.only_second},
                 {"pairs_of_other_classes", it.other_classes}};
    if (!is_utf8(it.first.path)) picture["path_b64"] = to_base64(it.first.path);
    worst.push_back(std::move(picture));
  }
  return {{"pictures", results.pictures},
          {"pictures_only_in_first", results.pictures_only_first},
          {"pictures_only_in_second", results.pictures_only_second},
          {"failed_only_in_first", results.failed_only_first},
          {"failed_only_in_second", results.failed_only_second},
          {"failed_in_both", results.failed_both},
          {"other_sizes", results.other_sizes},
          {"identical", results.identical},
          {"objects_of_first", results.objects_first},
          {"objects_of_second", results.objects_second},
          {"pairs", results.pairs},
          {"pairs_of_other_classes", results.other_classes},
          {"mean_iou", any ? Json(results.ious.mean()) : Json()},
          {"first_percentile_iou", any ? Json(results.ious.quantile(0.01)) : Json()},
          {"lowest_iou", any ? Json(results.ious.lowest()) : Json()},
          {"largest_box_shift_pixels", any ? Json(results.largest_box_shift) : Json()},
          {"worst", std::move(worst)}};
}

/// Why the rates say less than they seem to.
Json notes_json(const Json& first, const Json& second, bool other_machine) {
  constexpr double share = 0.1;  // of the cores
  Json notes = Json::array();
  const auto disturbed = [](const Json& run) {
    return run.at("other_cores").is_number() && run.at("cores").is_number() &&
           run.at("other_cores").get<double>() >= share * run.at("cores").get<double>();
  };
  if (other_machine) notes.push_back("The machines differ, so the rates do not compare the settings alone.");
  if (disturbed(first) || disturbed(second))
    notes.push_back("Other programs took cores from the runs, so the rates do not compare the settings alone.");
  notes.push_back(
      "Each rate is of one run. Repeat both runs, in turns, before you trust a difference of a few percent.");
  return notes;
}

std::string figure(const Json& value, const char* pattern) {
  return value.is_null() ? "-" : format(pattern, value.get<double>());
}

std::string text_of(const Json& value) {
  return value.is_null() ? "-" : value.is_string() ? value.get<std::string>() : value.dump();
}

std::string pictures_and(const Json& count, const char* what) {
  const auto number = count.get<std::int64_t>();
  return number == 0 ? "" : "  " + count_of(number, "picture") + what + "\n";
}

std::string results_text(const Json& results) {
  if (results.is_null()) return "  both attempts belong to the same output folder, which has one set of results\n";
  const auto number = [&](const char* key) { return results.at(key).get<std::int64_t>(); };
  std::string text = "  " + count_of(number("pictures"), "picture") + " in both outputs, " +
                     grouped(number("identical")) + " of them identical\n";
  text += pictures_and(results.at("pictures_only_in_first"), " only in the first output");
  text += pictures_and(results.at("pictures_only_in_second"), " only in the second output");
  text += pictures_and(results.at("failed_only_in_first"), " failed only in the first output");
  text += pictures_and(results.at("failed_only_in_second"), " failed only in the second output");
  text += pictures_and(results.at("failed_in_both"), " failed in both outputs");
  text += pictures_and(results.at("other_sizes"), " with another size in the other output: the file has changed");
  if (number("pictures") == 0) return text + "  no path is in both outputs: compare runs over the same input\n";
  text += "  objects: " + grouped(number("objects_of_first")) + " and " + grouped(number("objects_of_second")) + ", " +
          grouped(number("pairs")) + " of them in pairs with IoU 0.5 or more";
  if (number("pairs_of_other_classes") > 0)
    text += "; " + count_of(number("pairs_of_other_classes"), "pair") + " with two classes";
  text += "\n";
  if (number("pairs") > 0) {
    text += "  IoU of the pairs: mean " + figure(results.at("mean_iou"), "%.4f") + ", 1st percentile " +
            figure(results.at("first_percentile_iou"), "%.4f") + ", lowest " +
            figure(results.at("lowest_iou"), "%.4f") + "; largest shift of a box " +
            figure(results.at("largest_box_shift_pixels"), "%.2f") + " pixels\n";
  }
  if (results.at("worst").empty()) return text;
  text +=
      "\n  " + format("%3s  %10s  %12s  %13s  %s\n", "", "lowest IoU", "only in first", "only in second", "picture");
  int rank = 0;
  for (const Json& it : results.at("worst")) {
    text += "  " +
            format("%3d  %10.4f  %13lld  %14lld  ", ++rank, it.at("lowest_iou").get<double>(),
                   static_cast<long long>(it.at("objects_only_in_first").get<std::int64_t>()),
                   static_cast<long long>(it.at("objects_only_in_second").get<std::int64_t>())) +
            it.at("path").get<std::string>() + "\n";
  }
  return text;
}

}  // namespace

Json compare_attempts(const Attempt& first, const Attempt& second, const ResultsComparison* results) {
  const Json first_run = read_run(first.folder), second_run = read_run(second.folder);
  const Json a = run_json(first, first_run), b = run_json(second, second_run);
  Json ratios = Json::object();
  for (const char* key : {"pictures_per_s", "steady_pictures_per_s", "cpu_s_per_picture", "load_s"})
    ratios[key] = ratio(a.at(key), b.at(key));
  Json machine = differences(machine_of(first_run), machine_of(second_run));
  Json settings = differences(settings_of(first_run.value("config", "")), settings_of(second_run.value("config", "")));
  // The outputs have their own lines.
  std::erase_if(settings.get_ref<Json::array_t&>(), [](const Json& it) { return it.at("name") == "output.folder"; });
  // With other models, pictures or machines, a prediction would mean nothing.
  const bool comparable =
      machine.empty() && std::ranges::all_of(settings, [](const Json& it) {
        const std::set<std::string> known{"threads.workers", "threads.lanes", "read.threads",     "gate.frames",
                                          "gate.memory",     "batch.size",    "segment.box_batch"};
        return known.count(it.at("name").get<std::string>()) > 0;
      });
  Json prediction = comparable ? checked_prediction(first.folder, second.folder) : Json();
  return {{"schema", 1},
          {"notes", notes_json(a, b, !machine.empty())},
          {"first", a},
          {"second", b},
          {"second_to_first", std::move(ratios)},
          {"stages", stages_json(first.report, second.report)},
          {"settings", std::move(settings)},
          {"machine", std::move(machine)},
          {"prediction", std::move(prediction)},
          {"results", results != nullptr ? results_json(*results) : Json()}};
}

std::string comparison_text(const Json& comparison, int columns) {
  const Json& a = comparison.at("first");
  const Json& b = comparison.at("second");
  const Json& ratios = comparison.at("second_to_first");
  const auto row = [&](const char* label, const char* key, const char* pattern) {
    const Json quotient = ratios.value(key, Json());
    return "  " +
           format("%-24s %12s %12s", label, figure(a.at(key), pattern).c_str(), figure(b.at(key), pattern).c_str()) +
           (quotient.is_null() ? "" : format("   x %.2f", quotient.get<double>())) + "\n";
  };
  std::string text;
  for (const auto& [name, run] : {std::pair("first ", &a), std::pair("second", &b)}) {
    text += std::string(name) + "  " + run->at("output").get<std::string>() + "  " + run->at("run").get<std::string>();
    if (run->at("state") != "finished") text += "  (" + run->at("state").get<std::string>() + ")";
    text += "\n";
  }
  text += "\n  " + format("%-24s %12s %12s\n", "", "first", "second");
  text += row("pictures", "pictures", "%.0f");
  text += row("pictures/s", "pictures_per_s", "%.2f");
  text += row("  without fill and drain", "steady_pictures_per_s", "%.2f");
  text += row("CPU seconds a picture", "cpu_s_per_picture", "%.3f");
  text += row("loading, s", "load_s", "%.1f");
  text += row("cores used", "cores_used", "%.1f");
  text += row("cores of other programs", "other_cores", "%.1f");
  if (const Json& prediction = comparison.at("prediction"); !prediction.is_null())
    text += wrapped("the first attempt " + prediction_text(prediction), columns, "  ");
  for (const Json& note : comparison.at("notes")) text += wrapped("note: " + note.get<std::string>(), columns, "  ");
  text += "\n  " + format("%-16s %18s   %18s   %18s\n", "", "p50 ms", "util", "starved");
  text += "  " + format("%-16s %8s  %8s   %8s  %8s   %8s  %8s\n", "stage", "first", "second", "first", "second",
                        "first", "second");
  for (const Json& stage : comparison.at("stages")) {
    const auto value = [&](const char* run, const char* key, double factor, const char* pattern) {
      const Json& of_run = stage.at(run);
      const Json number = of_run.is_null() ? Json() : of_run.value(key, Json());
      return number.is_number() ? format(pattern, factor * number.get<double>()) : std::string("-");
    };
    text += "  " + format("%-16s", stage.at("name").get<std::string>().c_str());
    for (const auto& [key, factor, pattern] :
         {std::tuple("p50_ms", 1.0, "%.2f"), std::tuple("utilisation", 100.0, "%.0f %%"),
          std::tuple("starved", 100.0, "%.0f %%")})
      text += format(" %8s  %8s  ", value("first", key, factor, pattern).c_str(),
                     value("second", key, factor, pattern).c_str());
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  text += "\n";
  for (const auto& [name, run] : {std::pair("first:  ", &a), std::pair("second: ", &b)}) {
    if (run->at("verdict").is_string()) text += wrapped(name + run->at("verdict").get<std::string>(), columns, "  ");
  }
  for (const auto& [kind, parts] : {std::pair("settings", "settings"), std::pair("machine", "parts of the machine")}) {
    const Json& list = comparison.at(kind);
    text += std::string("\n") +
            (list.empty() ? std::string(kind) + ": no differences\n" : std::string(parts) + " that differ\n");
    for (const Json& it : list)
      text += "  " + format("%-26s ", it.at("name").get<std::string>().c_str()) + text_of(it.at("first")) + "  ->  " +
              text_of(it.at("second")) + "\n";
  }
  text += "\nresults\n" + results_text(comparison.at("results"));
  return text;
}

}  // namespace millrace
