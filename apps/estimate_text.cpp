// Arguments and output of `millrace estimate`.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "apps/estimate.hpp"
#include "apps/format.hpp"
#include "base/json.hpp"
#include "base/text.hpp"
#include "io/files/source_names.hpp"
#include "stages/options.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }

Json figure_json(const Figure& figure) {
  return {{"value", figure.value}, {"low", or_null(figure.low)}, {"high", or_null(figure.high)}};
}

Json count_json(const Figure& figure) {
  const auto rounded = [](const std::optional<double>& value) { return value ? Json(std::llround(*value)) : Json(); };
  return {{"value", std::llround(figure.value)}, {"low", rounded(figure.low)}, {"high", rounded(figure.high)}};
}

/// The plans of all devices together: the models and calls are measured, the rest is a computed maximum.
Json gpu_json(const std::vector<MemoryPlan>& plans) {
  if (plans.empty()) return nullptr;
  Json gpus = Json::array();
  for (const MemoryPlan& plan : plans) {
    gpus.push_back({{"device", plan.device},
                    {"value", plan.bytes()},
                    {"low", plan.models_bytes + plan.lanes * plan.calls_bytes},
                    {"high", plan.bytes()}});
  }
  return gpus;
}

bool fits(const Figure& need, double free) { return need.high.value_or(need.value) <= free; }

/// Views of the input without a picture in the sample.
Json missing_views(const EstimateFacts& facts) {
  Json missing = Json::array();
  for (std::size_t i = 0; i < facts.input.view_names.size(); ++i) {
    const std::string& name = facts.input.view_names[i];
    if (facts.input.per_view[i] > 0 && facts.sample->files.views.count(name) == 0)
      missing.push_back({{"view", name}, {"pictures", facts.input.per_view[i]}});
  }
  return missing;
}

Json sample_json(const EstimateFacts& facts) {
  const SampleRun& sample = *facts.sample;
  return {{"pictures", sample.times.pictures},
          {"every", sample.every},
          {"failed", sample.report.failed_now},
          {"wall_s", sample.wall_s},
          {"window_s", sample.times.window_s},
          {"other_cores", or_null(other_cores(sample.report.window))},
          {"steady_pictures_per_s", or_null(sample.times.steady_pictures_per_s)},
          {"views_without_a_picture", missing_views(facts)}};
}

// --- text

std::string time_text(double s) {
  if (s < 1) return format("%.0f ms", s * 1e3);
  if (s < 120) return format("%.1f s", s);
  const std::int64_t seconds = std::llround(s);
  if (seconds < 3600) return std::to_string(seconds / 60) + " min " + std::to_string(seconds % 60) + " s";
  const std::int64_t minutes = std::llround(s / 60);
  const std::int64_t hours = minutes / 60;
  if (hours < 72) return grouped(hours) + " h " + std::to_string(minutes % 60) + " min";
  return grouped(hours / 24) + " days " + std::to_string(hours % 24) + " h";
}
std::string rate_text(double rate) { return rate < 100 ? format("%.2f", rate) : grouped(std::llround(rate)); }
std::string count_text(double count) { return grouped(std::llround(count)); }

template <class Print>
std::string row(const std::string& name, const Json& figure, const Print& print) {
  const auto shown = [&](const char* key) {
    return figure.is_null() || figure.at(key).is_null() ? std::string("-")
                                                        : print(figure.at(key).template get<double>());
  };
  return format("  %-22s %14s %14s %14s\n", name.c_str(), shown("value").c_str(), shown("low").c_str(),
                shown("high").c_str());
}

std::string sample_text(const Json& sample) {
  const auto every = sample.at("every").get<std::int64_t>();
  const auto failed = sample.at("failed").get<std::int64_t>();
  std::string text = "sample: " + count_of(sample.at("pictures").get<std::int64_t>(), "picture");
  text += every == 1 ? ", the whole input" : ", one of " + grouped(every);
  text += ", in " + time_text(sample.at("wall_s").get<double>());
  if (failed > 0) text += "; " + grouped(failed) + " failed";
  const Json& others = sample.at("other_cores");
  if (!others.is_null() && others.get<double>() >= 0.1)
    text += format("; other programs took %.1f cores", others.get<double>());
  text += "\n";
  for (const Json& missing : sample.at("views_without_a_picture")) {
    text += "  no picture of view " + display_name(missing.at("view").get<std::string>()) + " (" +
            grouped(missing.at("pictures").get<std::int64_t>()) + ") is in the sample; name a larger --pictures\n";
  }
  return text;
}

}  // namespace

EstimateArguments parse_estimate(const std::vector<std::string>& arguments) {
  constexpr std::int64_t most = 1'000'000;
  EstimateArguments parsed;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--json") {
      parsed.json = true;
    } else if (word == "--pictures" || word.starts_with("--pictures=")) {
      std::string value;
      if (word.size() > std::string("--pictures").size()) {
        value = word.substr(word.find('=') + 1);
      } else if (i + 1 < arguments.size()) {
        value = arguments[++i];
      }
      std::int64_t number = 0;
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
      if (error != std::errc() || end != value.data() + value.size() || number < 1 || number > most)
        throw UsageError("--pictures needs the number of pictures of the sample, from 1 to 1,000,000");
      parsed.pictures = number;
    } else {
      parsed.run.push_back(word);
    }
  }
  return parsed;
}

std::string estimate_help() {
  return "Usage: millrace estimate [options of `millrace run`] [--pictures N] [--json]\n\n"
         "Predicts what a run needs: time, memory, files and bytes. It processes a sample of the pictures into a\n"
         "hidden folder in the output or above it, and removes the folder. The results of the output do not change.\n\n"
         "  --pictures N  pictures of the sample; default: 64, or more if the pipeline is large or quick\n"
         "  --json        print JSON\n\n"
         "`millrace run --help` shows the options of a run.\n\n"
         "Example:\n"
         "  millrace estimate --input pictures/ --detector yolov8n.pkg --segmenter mobile_sam.pkg --output out/\n\n"
         "Exit codes are those of `millrace run`, except:\n"
         "  0    the run fits on the disk\n"
         "  6    the run does not fit on the disk, or writing failed\n"
         "  130  stopped by Ctrl-C, without an estimate\n";
}

Json estimate_json(const EstimateFacts& facts) {
  Json json{{"schema", 1},
            {"input", {{"pictures", facts.input.items}, {"bytes", facts.input.bytes}}},
            {"output", nullptr},
            {"pictures", facts.scope.pictures},
            {"sample", nullptr},
            {"wall_s", nullptr},
            {"pictures_per_s", nullptr},
            {"peak_memory_bytes", nullptr},
            {"gpu_memory_bytes", nullptr},
            {"output_bytes", nullptr},
            {"output_files", nullptr},
            {"disk_bytes", nullptr},
            {"inodes", nullptr},
            {"parts", nullptr},
            {"free_bytes", facts.free.bytes},
            {"free_inodes", or_null(facts.free.inodes)},
            {"fits", facts.sample_fits ? Json() : Json(false)},
            {"notes", facts.notes}};
  if (facts.state) {
    json["output"] = {{"planned", facts.state->planned}, {"done", facts.state->done()}, {"left", facts.state->left()}};
  }
  if (facts.scope.pictures == 0) json["fits"] = true;
  if (!facts.sample) return json;
  const SampleRun& sample = *facts.sample;
  json["sample"] = sample_json(facts);
  const TimeEstimate time = estimate_time(sample.times, facts.scope.pictures);
  const OutputEstimate output = estimate_output(sample.files, facts.scope, time.wall_s);
  json["wall_s"] = figure_json(time.wall_s);
  json["pictures_per_s"] = figure_json(time.pictures_per_s);
  if (sample.memory.peak_bytes > 0)
    json["peak_memory_bytes"] = count_json(estimate_memory(sample.memory, facts.scope.pictures));
  json["gpu_memory_bytes"] = gpu_json(sample.report.memory);
  json["output_bytes"] = count_json(output.bytes);
  json["output_files"] = count_json(output.files);
  json["disk_bytes"] = count_json(output.disk_bytes);
  json["inodes"] = count_json(output.inodes);
  json["parts"] = Json::object();
  for (const OutputPart& part : output.parts)
    json["parts"][part.name] = {{"bytes", count_json(part.bytes)}, {"files", count_json(part.files)}};
  json["fits"] =
      fits(output.disk_bytes, facts.free.bytes) && (!facts.free.inodes || fits(output.inodes, *facts.free.inodes));
  return json;
}

std::string estimate_text(const Json& estimate) {
  const auto pictures = estimate.at("pictures").get<std::int64_t>();
  std::string text = count_of(pictures, "picture") + " to process";
  if (const Json& output = estimate.at("output"); !output.is_null())
    text += "; " + grouped(output.at("done").get<std::int64_t>()) + " are done";
  text += "\n";
  if (pictures == 0) return text + "nothing is left to process, so there is nothing to estimate\n";
  if (estimate.at("sample").is_null()) return text + "no sample, so every figure is unknown\n";
  text += sample_text(estimate.at("sample"));
  text += format("\n  %-22s %14s %14s %14s\n", "", "estimate", "low", "high");
  text += row("time", estimate.at("wall_s"), time_text);
  text += row("pictures/s", estimate.at("pictures_per_s"), rate_text);
  text += row("memory, peak", estimate.at("peak_memory_bytes"), readable_bytes);
  if (const Json& gpus = estimate.at("gpu_memory_bytes"); !gpus.is_null()) {
    for (const Json& gpu : gpus) text += row("memory of " + gpu.at("device").get<std::string>(), gpu, readable_bytes);
  }
  text += row("output", estimate.at("output_bytes"), readable_bytes);
  for (const auto& [name, part] : estimate.at("parts").items())
    text += row("  " + name, part.at("bytes"), readable_bytes);
  text += row("files", estimate.at("output_files"), count_text);
  for (const auto& [name, part] : estimate.at("parts").items()) text += row("  " + name, part.at("files"), count_text);
  text += row("space on the disk", estimate.at("disk_bytes"), readable_bytes);
  text += "\nnine of ten runs should be between low and high; free on the disk: " +
          readable_bytes(estimate.at("free_bytes").get<double>());
  if (const Json& inodes = estimate.at("free_inodes"); !inodes.is_null())
    text += " and " + count_of(std::llround(inodes.get<double>()), "file");
  return text + "\n";
}

}  // namespace millrace
