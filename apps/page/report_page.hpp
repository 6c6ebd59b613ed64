#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace millrace {

/// Whether failed pictures have thumbnails. To make them, the pictures are read and decoded.
enum class Pictures {
  none,
  thumbnails,
};

/// The page of an attempt, report.html: one file without links to others.
///
/// Browsers get the figures as JSON, and scripts of the page show them. A content policy forbids all other scripts.
/// - `report` is the content of report.json.
/// - `attempt` is the folder of the attempt. Its resources.csv, errors.jsonl and run.json are shown if they exist.
/// - `text` is the report as text, for browsers without scripts.
std::string report_page(const nlohmann::json& report, const std::string& attempt, const std::string& text,
                        Pictures pictures = Pictures::thumbnails);

/// Writes the page of an attempt to `file`, or to report.html in the folder `attempt` if `file` is empty.
/// Returns the line that tells the user where it is. Throws StorageError.
/// `output` is the output folder as the user named it.
std::string write_page(const nlohmann::json& report, const std::string& output, const std::string& attempt,
                       std::string file, Pictures pictures = Pictures::thumbnails);

/// Where the scripts of a page may load data from.
enum class Loads {
  nothing,
  from_its_server,
};

/// A page for browsers: one file without links to others. `script` shows `data`, with the functions of charts.js.
/// `title` and `text`, for browsers without scripts, are texts of the program.
std::string page_of(const std::string& title, const std::string& text, const nlohmann::json& data,
                    std::string_view script, Loads loads = Loads::nothing);

/// The content policy of such a page.
std::string content_policy(std::string_view script, Loads loads);

/// Gives the thumbnail of a failed picture, as Thumbnails::make() does, or null. Empty: there are no thumbnails.
using ShowPicture = std::function<nlohmann::json(const std::string& path)>;

/// What report.js shows next to the report: {"errors", "run"}, from errors.jsonl and run.json of an attempt.
nlohmann::json files_of(const std::string& attempt, const ShowPicture& show);

/// The folder from which relative paths of the attempt's pictures start. Nothing if the plan is missing or damaged.
std::optional<std::string> picture_root_of(const std::string& attempt);

/// timeline.json of an attempt; null if it is missing or damaged.
nlohmann::json timeline_of(const std::string& attempt);

inline constexpr std::size_t most_points_of_chart = 400;  ///< up to twice as many before they are thinned

/// JSON for an element `script`: ASCII without `<`, `>` and `&`.
std::string json_for_script(const nlohmann::json& json);

/// Text for an element: `<`, `>` and `&` become references.
std::string escaped_html(std::string_view text);

}  // namespace millrace
