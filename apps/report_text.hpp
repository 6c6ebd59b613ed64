#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace millrace {

/// The text that a run prints to stdout at its end: counts, the table of stages, the bottleneck, and the files written.
/// `report` is the content of report.json, so the text is the same when it is printed again later.
/// Sentences wrap at `columns`; the rows of the table do not. `colour` adds escape sequences for bold.
/// Throws nlohmann::json::exception if a key is missing or has another type.
std::string to_text(const nlohmann::json& report, const std::string& output_folder, int columns, bool colour);

/// Breaks a sentence at spaces into lines of at most `columns`, each with its newline. Each line begins with `indent`.
std::string wrapped(const std::string& text, int columns, const std::string& indent);

}  // namespace millrace
