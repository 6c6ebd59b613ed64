#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace millrace {

/// Predicts changes of an attempt from its recording.json. The result has the form of `what_if` in report.json, and
/// `mismatch`: how far the model is off without a change. Changes are in the order of the arguments.
/// Throws UsageError if the attempt has no recording, or for a change that cannot be read.
nlohmann::json predict(const std::string& attempt_folder, const std::vector<std::string>& changes);

/// Rows for people: label, predicted rate with its interval, and gain. At most `rows` of those that gain at least
/// `min_gain`; empty if there is none.
std::string what_if_text(const nlohmann::json& what_if, std::size_t rows, double min_gain);

/// One sentence about `prediction` of report.json: what was predicted and what came.
std::string prediction_text(const nlohmann::json& prediction);

/// What the recording of one attempt predicts for another one, in the form of `prediction` in report.json. Null if one of
/// them has no recording, or if they do not differ in numbers that the model knows.
nlohmann::json checked_prediction(const std::string& first_folder, const std::string& second_folder);

}  // namespace millrace
