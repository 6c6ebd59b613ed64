#include "apps/what_if.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include "apps/format.hpp"
#include "base/json.hpp"
#include "io/files/files.hpp"
#include "io/files/source_names.hpp"
#include "io/results/segments_manifest.hpp"
#include "run/recording.hpp"
#include "run/report.hpp"
#include "stages/options.hpp"

namespace millrace {

namespace {

constexpr std::int64_t largest = 16 << 20;  // of recording.json

}  // namespace

nlohmann::json checked_prediction(const std::string& first_folder, const std::string& second_folder) {
  std::vector<Recording> recordings;
  for (const std::string& folder : {first_folder, second_folder}) {
    const std::string file = folder + "/recording.json";
    std::error_code error;
    if (!std::filesystem::exists(file, error)) return nullptr;
    auto recording = recording_from_json(read_text_file(file, largest));
    if (!recording) return nullptr;
    recordings.push_back(*std::move(recording));
  }
  const auto checked = check_prediction(recordings[0], recordings[1]);
  return checked ? to_json(*checked) : nlohmann::json();
}

std::string prediction_text(const nlohmann::json& prediction) {
  return format("predicted %.2f pictures/s [%.2f to %.2f] for %s, from %.2f; the rate is %.2f, %s the interval",
                prediction.at("predicted_pictures_per_s").get<double>(), prediction.at("low").get<double>(),
                prediction.at("high").get<double>(), prediction.at("label").get<std::string>().c_str(),
                prediction.at("before_pictures_per_s").get<double>(), prediction.at("pictures_per_s").get<double>(),
                prediction.at("inside").get<bool>() ? "inside" : "outside");
}

nlohmann::json predict(const std::string& attempt_folder, const std::vector<std::string>& changes) {
  const std::string file = attempt_folder + "/recording.json";
  std::error_code error;
  if (!std::filesystem::exists(file, error))
    throw UsageError("'" + display_name(attempt_folder) +
                     "' has no recording.json: short runs, failed runs and runs with measure.enabled=no have none. " +
                     "Choose another attempt with --run, or run longer");
  const auto recording = recording_from_json(read_text_file(file, largest));
  if (!recording)
    throw ResultsDamaged("'" + display_name(file) + "' is damaged or of another version: run again to make a new one");
  const WhatIf what_if(*recording);
  std::vector<Prediction> predictions;
  for (const auto& change : changes) {
    try {
      predictions.push_back(what_if.predict(change));
    } catch (const std::invalid_argument& error) {
      throw UsageError(error.what());
    }
  }
  auto json = to_json(predictions, recording->frames_per_s);
  json["mismatch"] = what_if.mismatch();
  return json;
}

std::string what_if_text(const nlohmann::json& what_if, std::size_t rows, double min_gain) {
  const double now = what_if.at("pictures_per_s");
  const auto interval = [](const nlohmann::json& change) {
    return format("[%.2f to %.2f]", change.at("low").get<double>(), change.at("high").get<double>());
  };
  int width = 0;  // of the column of intervals
  for (const auto& change : what_if.at("changes")) width = std::max(width, static_cast<int>(interval(change).size()));
  std::string text;
  for (const auto& change : what_if.at("changes")) {
    const double rate = change.at("pictures_per_s");
    if (now <= 0 || rate < now * (1 + min_gain)) continue;
    if (rows-- == 0) break;
    text += format("  %-36s %6.2f %-*s %+5.0f %%\n", change.at("label").get<std::string>().c_str(), rate, width,
                   interval(change).c_str(), std::round(100 * (rate / now - 1)) + 0.0);  // + 0.0: no "-0 %"
  }
  return text.empty() ? "" : format("  %-36s pictures/s, now %.2f\n", "if this changed", now) + text;
}

}  // namespace millrace
