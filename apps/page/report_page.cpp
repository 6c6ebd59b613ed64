#include "apps/page/report_page.hpp"

#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "apps/attempt.hpp"
#include "apps/page/files.hpp"
#include "apps/page/series.hpp"
#include "apps/page/thumbnails.hpp"
#include "apps/report_text.hpp"
#include "base/json.hpp"
#include "io/files/base64.hpp"
#include "io/files/files.hpp"
#include "io/files/source_names.hpp"
#include "io/results/plan_files.hpp"
#include "run/timeline.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

// These limits and most_points_of_chart keep the page below 3 MB for a run of any length.
constexpr std::size_t most_errors = 200;
constexpr std::size_t longest_text = 1000;         // bytes of a path or a message
constexpr std::size_t most_error_bytes = 500'000;  // of all errors in the page, without their thumbnails

std::string shortened(std::string text) {
  if (text.size() <= longest_text) return text;
  text.resize(longest_text);
  return text + "...";
}

/// A line of errors.jsonl, for people. Throws Json::exception, or std::invalid_argument for a path that is no base64.
Json error_of(const Json& line, const ShowPicture& show) {
  std::string path = line.at("path").get<std::string>();
  if (line.contains("path_b64")) path = from_base64(line.at("path_b64").get<std::string>());
  Json error{{"path", shortened(display_name(path))},
             {"stage", shortened(line.at("stage").get<std::string>())},
             {"reason", shortened(line.at("reason").get<std::string>())},
             {"detail", shortened(display_name(line.at("detail").get<std::string>()))}};
  if (show) {
    if (Json thumbnail = show(path); !thumbnail.is_null()) error["thumbnail"] = std::move(thumbnail);
  }
  return error;
}

/// The first lines of errors.jsonl. Lines that a killed run left half-written are left out.
Json first_errors(const std::string& attempt, const ShowPicture& show) {
  Json errors = Json::array();
  std::ifstream lines(attempt + "/errors.jsonl");
  std::size_t bytes = 0;
  for (std::string line; errors.size() < most_errors && bytes < most_error_bytes && std::getline(lines, line);) {
    const Json error = Json::parse(line, nullptr, false);
    if (!error.is_object()) continue;
    try {
      errors.push_back(error_of(error, show));
    } catch (const Json::exception&) {
      continue;
    } catch (const std::invalid_argument&) {
      continue;
    }
    Json text = errors.back();
    text.erase("thumbnail");
    bytes += json_for_script(text).size();
  }
  return errors;
}

/// Version and settings from run.json; null if the file is missing or damaged.
Json run_of(const std::string& attempt) {
  const Json run = read_run(attempt);
  Json kept = Json::object();
  for (const char* key : {"tool", "config"}) {
    if (run.contains(key) && run.at(key).is_string()) kept[key] = run.at(key);
  }
  return run.empty() ? Json() : kept;
}

/// A source of the content policy: 'sha256-...'.
std::string hash_source(std::string_view content) {
  const std::string hex = sha256_hex(content);
  std::string digest;
  constexpr int base = 16;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    digest += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, base));
  return "'sha256-" + to_base64(digest) + "'";
}

/// Replaces each @NAME@ of a template. Names in the values are left alone.
std::string filled(std::string_view text, const std::vector<std::pair<std::string_view, std::string_view>>& values) {
  std::string out;
  while (!text.empty()) {
    const auto open = text.find('@');
    out += text.substr(0, open);
    if (open == std::string_view::npos) break;
    const auto close = text.find('@', open + 1);
    const auto name = text.substr(open + 1, close - open - 1);
    bool known = false;
    for (const auto& [key, value] : values) {
      if (key != name) continue;
      out += value;
      known = true;
    }
    if (!known) throw std::logic_error("report.html has the unknown name " + std::string(name));
    text.remove_prefix(close + 1);
  }
  return out;
}

}  // namespace

std::string json_for_script(const Json& json) {
  const std::string text = json.dump(-1, ' ', true, Json::error_handler_t::replace);
  std::string out;
  out.reserve(text.size());
  // These letters occur in strings only, where JSON allows their numbers.
  for (const char letter : text) {
    if (letter == '<') {
      out += "\\u003c";
    } else if (letter == '>') {
      out += "\\u003e";
    } else if (letter == '&') {
      out += "\\u0026";
    } else {
      out += letter;
    }
  }
  return out;
}

std::string escaped_html(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '<') {
      out += "&lt;";
    } else if (letter == '>') {
      out += "&gt;";
    } else if (letter == '&') {
      out += "&amp;";
    } else {
      out += letter;
    }
  }
  return out;
}

std::string content_policy(std::string_view script, Loads loads) {
  return "default-src 'none'; script-src " + hash_source(page_files::library) + " " + hash_source(page_files::charts) +
         " " + hash_source(script) + "; style-src " + hash_source(page_files::style) + "; img-src data:; connect-src " +
         (loads == Loads::nothing ? "'none'" : "'self'") + "; base-uri 'none'; form-action 'none'";
}

std::string page_of(const std::string& title, const std::string& text, const Json& data, std::string_view script,
                    Loads loads) {
  return filled(page_files::html, {{"POLICY", content_policy(script, loads)},
                                   {"STYLE", page_files::style},
                                   {"TITLE", title},
                                   {"TEXT", escaped_html(to_utf8_lossy(text))},
                                   {"LICENCE", escaped_html(page_files::licence)},
                                   {"DATA", json_for_script(data)},
                                   {"LIBRARY", page_files::library},
                                   {"CHARTS", page_files::charts},
                                   {"SCRIPT", script}});
}

Json timeline_of(const std::string& attempt) {
  constexpr std::int64_t largest = 4 << 20;
  try {
    return timeline_from_json(read_text_file(attempt + "/timeline.json", largest));
  } catch (const StorageError&) {  // older attempts, and runs without lanes, have none
    return nullptr;
  }
}

Json files_of(const std::string& attempt, const ShowPicture& show) {
  return {{"errors", first_errors(attempt, show)}, {"run", run_of(attempt)}};
}

std::optional<std::string> picture_root_of(const std::string& attempt) {
  try {
    const auto output = std::filesystem::path(attempt).parent_path().parent_path();
    const auto plan = PlanFiles(output.empty() ? "." : output.string()).read_plan();
    return plan ? picture_root(*plan) : std::nullopt;
  } catch (const std::exception&) {  // a copy of runs/ has no plan; the page is complete without thumbnails
    return std::nullopt;
  }
}

std::string report_page(const Json& report, const std::string& attempt, const std::string& text, Pictures pictures) {
  std::ifstream csv(attempt + "/resources.csv");
  const auto root = pictures == Pictures::thumbnails ? picture_root_of(attempt) : std::nullopt;
  ShowPicture show;
  if (root) show = [thumbnails = Thumbnails(*root)](const std::string& path) mutable { return thumbnails.make(path); };
  Json data = files_of(attempt, show);
  data["report"] = report;
  data["series"] = thinned_csv(csv, most_points_of_chart);
  data["timeline"] = timeline_of(attempt);
  return page_of("Millrace report", text, data, std::string(page_files::timeline) + std::string(page_files::script));
}

std::string write_page(const nlohmann::json& report, const std::string& output, const std::string& attempt,
                       std::string file, Pictures pictures) {
  constexpr int columns = 100;
  if (file.empty()) file = attempt + "/report.html";
  const std::filesystem::path path(file);
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  const std::string page = report_page(report, attempt, to_text(report, output, columns, false), pictures);
  write_durably(folder, path.filename().string(), page);
  return "page     " + display_name(file) + "\n";
}

}  // namespace millrace
