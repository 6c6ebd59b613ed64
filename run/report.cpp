#include "run/report.hpp"

#include <algorithm>

#include "base/json.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }
Json or_null(const std::optional<double>& value) { return value ? Json(*value) : Json(); }
Json seconds_or_null(const std::optional<std::int64_t>& ns) { return ns ? Json(seconds(*ns)) : Json(); }

/// Pairs of a time in ms and the number of items that took no longer, but longer than the time before it.
Json times_json(const LatencyHistogram& latency) {
  Json times = Json::array();
  for (const auto& [highest_ns, count] : latency.filled())
    times.push_back({highest_ns ? Json(static_cast<double>(*highest_ns) / 1e6) : Json(), count});
  return times;
}

Json reading_json(const Reading& reading, std::int64_t wall_ns, const RunReport& report) {
  const bool any = reading.items > 0;
  const auto bytes = report.stage_bytes.find(reading.name);
  const auto waiting_ns = reading.measured_ns - reading.on_core_ns - reading.no_core_ns;
  Json json{{"name", reading.name},
            {"counts", to_string(reading.unit)},
            {"items", reading.items},
            {"failed", reading.failed},
            {"busy_s", seconds(reading.busy_ns)},
            {"p50_ms", any ? Json(reading.latency.quantile_ns(0.5) / 1e6) : Json()},
            {"p95_ms", any ? Json(reading.latency.quantile_ns(0.95) / 1e6) : Json()},
            {"times_ms", times_json(reading.latency)},
            {"bytes", bytes == report.stage_bytes.end() ? Json() : Json(bytes->second)},
            {"on_core", or_null(reading.on_core())},
            {"no_core", or_null(reading.no_core())},
            {"waiting", reading.measured_ns > 0 ? Json(seconds(waiting_ns) / seconds(reading.measured_ns)) : Json()},
            {"core_s", reading.measured_ns > 0 ? Json(seconds(reading.core_ns)) : Json()},
            {"mean_queue", reading.mean_queue(wall_ns)}};
  if (reading.servers > 0) {
    json["concurrency"] = reading.servers;
    json["utilisation"] = reading.utilisation(wall_ns);
    json["starved"] = reading.starved(wall_ns);
  }
  return json;
}

/// The peak in the model calls of a stage, on the device where it is highest; null if the stage calls no model there.
Json peak_device_bytes(const std::string& stage, const std::vector<MemoryPlan>& plans) {
  Json peak;
  for (const MemoryPlan& plan : plans) {
    const auto bytes = plan.stage_bytes.find(stage);
    if (bytes != plan.stage_bytes.end()) peak = std::max(peak.is_null() ? 0 : peak.get<std::int64_t>(), bytes->second);
  }
  return peak;
}

Json source_json(const Snapshot& window) {
  if (!window.measured) return nullptr;
  return {{"without_credits_s", seconds(window.without_credits.busy_ns)},
          {"without_credits_by_limit_s",
           {{"gate.frames", seconds(window.credit_waits.frames_ns)},
            {"read.ahead", seconds(window.credit_waits.read_ahead_ns)},
            {"gate.memory", seconds(window.credit_waits.bytes_ns)}}},
          {"waiting_for_input_s", seconds(window.input.busy_ns)}};
}

Json latency_json(const Snapshot& window) {
  if (window.committed <= 0) return nullptr;
  return {{"p50_s", window.latency.quantile_ns(0.5) / 1e9}, {"p95_s", window.latency.quantile_ns(0.95) / 1e9}};
}

Json window_json(const RunReport& report) {
  const Snapshot& window = report.window;
  Json resources = Json::array();
  for (const auto& resource : window.resources) {
    Json json = reading_json(resource.total, window.time_ns, report);
    for (const auto& part : resource.parts) {
      Json one = reading_json(part, window.time_ns, report);
      if (resource.in_turn) {
        one.erase("starved");  // a part waits for the one before it: only the whole can starve
        one["peak_device_bytes"] = peak_device_bytes(part.name, report.memory);
      }
      json["parts"].push_back(std::move(one));
    }
    // The load of a GPU is a sum of calls, each with its time alone. Queues and latencies are not measured.
    if (resource.waited_for_by_lanes) {
      const auto keep_known = [&](Json& row, const Reading& reading) {
        for (const char* unknown : {"starved", "mean_queue", "p50_ms", "p95_ms", "times_ms", "bytes", "on_core",
                                    "no_core", "waiting", "core_s"})
          row.erase(unknown);
        if (!resource.copies) row["launch_s"] = seconds(reading.launch_ns);
      };
      keep_known(json, resource.total);
      for (std::size_t i = 0; i < resource.parts.size(); ++i) keep_known(json["parts"][i], resource.parts[i]);
    }
    resources.push_back(std::move(json));
  }
  const double wall_s = seconds(window.time_ns);
  Phases phases = phases_of(window);
  // Nobody knows yet when the last picture enters.
  if (report.state == "running") phases.steady_ns = phases.drain_ns = std::nullopt;
  if (report.state == "running") phases.steady_rate = std::nullopt;
  const auto mean_waiting = [&](const Reading& place) {
    return window.measured ? Json(place.mean_queue(window.time_ns)) : Json();
  };
  return {{"wall_s", wall_s},
          {"admitted", window.planned},
          {"committed", window.committed},
          {"pictures_per_s", wall_s > 0 ? static_cast<double>(window.committed) / wall_s : 0},
          {"fill_s", seconds_or_null(phases.fill_ns)},
          {"steady_s", seconds_or_null(phases.steady_ns)},
          {"drain_s", seconds_or_null(phases.drain_ns)},
          {"steady_pictures_per_s", or_null(phases.steady_rate)},
          {"latency", latency_json(window)},
          {"source", source_json(window)},
          {"gate",
           {{"frames", window.admission_items},
            {"mean_waiting_for_bytes", mean_waiting(window.bytes)},
            {"mean_waiting_for_batch", mean_waiting(window.batch)}}},
          {"cpu_s", seconds(window.cpu_ns)},
          {"cores", window.cores},
          {"machine",
           {{"busy_s", seconds_or_null(window.machine.busy_ns)},
            {"stolen_s", seconds_or_null(window.machine.stolen_ns)},
            {"throttled_s", seconds_or_null(window.machine.throttled_ns)},
            {"cpu_stall_s", seconds_or_null(window.machine.cpu_stall_ns)},
            {"memory_stall_s", seconds_or_null(window.machine.memory_stall_ns)},
            {"io_stall_s", seconds_or_null(window.machine.io_stall_ns)}}},
          {"cores_busy", window.cores > 0 && wall_s > 0 ? seconds(window.cpu_ns) / (wall_s * window.cores) : 0},
          {"resources", std::move(resources)}};
}

Json verdict_json(const Verdict& verdict) {
  return {{"sentence", verdict.sentence},
          {"kind", to_string(verdict.kind)},
          {"bottleneck", named(verdict)},
          {"short_because", verdict.thin},
          {"busiest", verdict.stage},
          {"resource", verdict.resource},
          {"utilisation", verdict.utilisation},
          {"no_core", or_null(verdict.no_core)},
          {"starved", verdict.starved},
          {"mean_queue", verdict.mean_queue},
          {"source_without_credits", verdict.without_credits},
          {"source_waiting_for_input", verdict.input},
          {"cores_busy", verdict.cores},
          {"other_cores", or_null(verdict.other_cores)},
          {"gain_without_others", verdict.other_cores ? Json(verdict.gain_without_others) : Json()},
          {"binds_without_others", verdict.binds_without_others},
          {"memory_stall", or_null(verdict.memory_stall)},
          {"disk_stall", or_null(verdict.disk_stall)},
          {"runner_up", verdict.runner_up},
          {"runner_up_utilisation", verdict.runner_up_utilisation},
          {"gain_if_twice_as_fast", verdict.gain},
          {"then_binds", verdict.then_binds},
          {"gpu", verdict.gpu.kind == GpuLimit::Kind::unknown ? Json()
                                                              : Json{{"kind", to_string(verdict.gpu.kind)},
                                                                     {"launch", verdict.gpu.launch},
                                                                     {"heat_limited", or_null(verdict.gpu.heat)},
                                                                     {"power_limited", or_null(verdict.gpu.power)}}}};
}

/// What one view did in a stage; null if it has no figures of views.
Json view_in_stage_json(const Reading& stage, std::size_t view) {
  if (view >= stage.groups.size()) return nullptr;
  const GroupReading& mine = stage.groups[view];
  std::int64_t all_ns = 0;
  for (const GroupReading& one : stage.groups) all_ns += one.busy_ns;
  return {{"name", stage.name},
          {"counts", to_string(stage.unit)},
          {"items", mine.items},
          {"failed", mine.failed},
          {"busy_s", seconds(mine.busy_ns)},
          {"mean_ms", mine.items > 0 ? Json(1e3 * seconds(mine.busy_ns) / static_cast<double>(mine.items)) : Json()},
          {"share", all_ns > 0 ? Json(seconds(mine.busy_ns) / seconds(all_ns)) : Json()}};
}

/// What each view did. Empty for a single view: it did everything.
Json views_json(const RunReport& report) {
  Json views = Json::array();
  if (report.views.size() < 2) return views;
  double all_s = 0;
  for (std::size_t i = 0; i < report.views.size(); ++i) {
    const ViewCounts& counts = report.views[i];
    Json stages = Json::array();
    double busy_s = 0;
    const auto add = [&](const Reading& stage) {
      if (Json json = view_in_stage_json(stage, i); !json.is_null()) {
        busy_s += json.at("busy_s").get<double>();
        stages.push_back(std::move(json));
      }
    };
    for (const auto& resource : report.window.resources) {
      if (resource.parts.empty()) add(resource.total);
      for (const auto& part : resource.parts) add(part);
    }
    all_s += busy_s;
    views.push_back(
        {{"name", counts.name},
         {"pictures", counts.pictures},
         {"failed", counts.failed},
         {"objects", counts.objects},
         {"busy_s", stages.empty() ? Json() : Json(busy_s)},
         {"mean_ms",
          stages.empty() || counts.pictures == 0 ? Json() : Json(1e3 * busy_s / static_cast<double>(counts.pictures))},
         {"share", nullptr},
         {"stages", std::move(stages)}});
  }
  for (Json& view : views) {
    if (all_s > 0) view["share"] = view.at("busy_s").get<double>() / all_s;
  }
  return views;
}

/// Before the first picture of a run, nothing is measured.
bool has_begun(const RunReport& report) { return report.state != "running" || report.window.planned > 0; }

/// Nobody has judged a run that failed, or that measured nothing: its figures are null.
Json verdict_json(const RunReport& report) {
  Json json = verdict_json(report.verdict);
  const bool begun = has_begun(report);
  if (report.window.measured && report.state != "failed" && begun) return json;
  for (auto& [key, value] : json.items()) {
    if (!begun || (key != "sentence" && key != "kind")) value = nullptr;
  }
  return json;
}

Json start_json(const StartTimes& start) {
  return {{"streams_s", seconds(start.streams_ns)},
          {"planning_s", seconds(start.planning_ns)},
          {"slowest_lane",
           {{"load_s", seconds(start.slowest.load_ns)},
            {"first_calls_s", seconds(start.slowest.first_calls_ns)},
            {"timing_s", seconds(start.slowest.timing_ns)}}}};
}

Json device_calls_json(const DeviceCalls& calls) {
  const auto each = [](std::int64_t count, std::int64_t of) {
    return of > 0 ? Json(static_cast<double>(count) / static_cast<double>(of)) : Json();
  };
  const auto rates = [&](const DeviceCounts& counts) {
    return Json{{"uploads_per_picture", each(counts.uploads, calls.pictures)},
                {"downloads_per_batch", each(counts.downloads, calls.batches)},
                {"waits_per_batch", each(counts.waits, calls.batches)}};
  };
  Json json = rates(calls.made);
  json["pictures"] = calls.pictures;
  json["batches"] = calls.batches;
  json["overflows_per_batch"] = each(calls.made.overflows, calls.batches);
  json["expected"] = rates(calls.declared);
  return json;
}

Json memory_json(const MemoryPlan& plan) {
  Json calls = Json::array();
  for (const auto& [key, rows] : plan.smaller_calls)
    calls.push_back({{"package", plan.called.at(key).first}, {"method", key.second}, {"most", rows}});
  return {{"device", plan.device},
          {"total_bytes", plan.total_bytes},
          {"free_bytes", plan.free_bytes},
          {"limit_bytes", plan.limit_bytes},
          {"models_bytes", plan.models_bytes},
          {"lane_calls_bytes", plan.calls_bytes},
          {"lane_pictures_bytes", plan.pictures_bytes},
          {"stage_calls_bytes", plan.stage_bytes},
          {"lanes", plan.lanes},
          {"wanted_lanes", plan.wanted_lanes},
          {"smaller_calls", calls}};
}

}  // namespace

Json to_json(const std::vector<Prediction>& predictions, double pictures_per_s) {
  Json changes = Json::array();
  for (const Prediction& it : predictions) {
    changes.push_back({{"change", it.change},
                       {"label", it.label},
                       {"pictures_per_s", it.frames_per_s},
                       {"low", it.low},
                       {"high", it.high}});
  }
  return {{"pictures_per_s", pictures_per_s}, {"changes", std::move(changes)}};
}

Json to_json(const CheckedPrediction& it) {
  return {{"change", it.prediction.change},     {"label", it.prediction.label},
          {"before_pictures_per_s", it.before}, {"predicted_pictures_per_s", it.prediction.frames_per_s},
          {"low", it.prediction.low},           {"high", it.prediction.high},
          {"pictures_per_s", it.after},         {"inside", it.inside()}};
}

Json to_json(const RunReport& report) {
  Json prediction = report.prediction ? to_json(*report.prediction) : Json();
  if (report.prediction) prediction["attempt"] = report.predicted_by;
  Json failed = Json::object();
  for (const auto& [reason, count] : report.counts.failed) failed[std::string(to_string(reason))] = count;
  Json loads = Json::array();
  for (const auto& load : report.models.loads)
    loads.push_back({{"package", load.package},
                     {"variant", load.variant},
                     {"load_s", seconds(load.wall_ns)},
                     {"bytes", load.bytes}});
  Json gpus = Json::array();
  for (const auto& gpu : report.gpus) {
    gpus.push_back({{"bus", gpu.bus},
                    {"mean_utilisation", or_null(gpu.mean_utilisation)},
                    {"peak_memory_bytes", or_null(gpu.peak_memory_bytes)},
                    {"mean_sm_mhz", or_null(gpu.mean_sm_mhz)},
                    {"mean_memory_mhz", or_null(gpu.mean_memory_mhz)},
                    {"mean_power_w", or_null(gpu.mean_power_w)},
                    {"peak_temperature_c", or_null(gpu.peak_temperature_c)},
                    {"heat_limited", or_null(gpu.heat_limited)},
                    {"power_limited", or_null(gpu.power_limited)}});
  }
  Json memory = Json::array();
  for (const auto& plan : report.memory) memory.push_back(memory_json(plan));
  Json calls = Json::object();
  for (const auto& [name, count] : report.calls) calls[name] = count;
  Json reduced = Json::object();
  for (const auto& output : report.reduced) reduced[output.name] = {{"file", output.file}, {"summary", output.summary}};
  Json skipped = Json::object();
  for (std::size_t i = 0; i < report.scan.skipped.size(); ++i) {
    if (report.scan.skipped[i].count > 0)
      skipped[std::string(to_string(static_cast<Skip>(i)))] = report.scan.skipped[i].count;
  }
  const double wall_s = seconds(report.window.time_ns);
  const double rate = wall_s > 0 ? static_cast<double>(report.window.committed) / wall_s : 0;
  Json json{
      {"schema", 1},
      {"run", report.run},
      {"started", report.started},
      {"state", report.state},
      {"error", report.error},
      {"items",
       {{"planned", report.planned},
        {"plan_complete", report.plan_complete},
        {"ok", report.counts.ok},
        {"failed", failed},
        {"failed_in_this_attempt", report.failed_now},
        {"objects", report.counts.objects},
        {"resumed", report.counts.resumed}}},
      {"input",
       {{"skipped", skipped},
        {"left_out", report.scan.summary()},
        {"videos_not_read", report.scan.videos.count},
        {"inputs_without_pictures", report.scan.empty_inputs.count},
        {"not_selected", report.scan.not_selected}}},
      {"load_s", seconds(report.load_ns)},
      {"warm_up_s", seconds(report.warm_up_ns)},
      {"start", start_json(report.start)},
      {"run_window", has_begun(report) ? window_json(report) : Json()},
      {"views", views_json(report)},
      {"verdict", verdict_json(report)},
      {"what_if", report.what_if.empty() ? Json() : to_json(report.what_if, rate)},
      {"prediction", std::move(prediction)},
      {"batch_size", report.batch_size},
      {"team", report.team},
      {"read_bytes", report.read_bytes},
      {"written_bytes", report.written_bytes},
      {"models",
       {{"loads", loads}, {"evictions", report.models.evictions}, {"resident_bytes", report.models.resident_bytes}}},
      {"calls", calls},
      {"device_calls", report.device_calls ? device_calls_json(*report.device_calls) : Json()},
      {"gpus", gpus},
      {"memory", memory},
      {"side_outputs", report.side_outputs},
      {"reduced", reduced},
      {"notes", report.notes}};
  if (report.state == "running") {
    for (const char* known_at_the_end : {"gpus", "side_outputs", "reduced"}) json[known_at_the_end] = nullptr;
  }
  return json;
}

}  // namespace millrace
