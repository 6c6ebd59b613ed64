#include "apps/report_text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <set>

#include "base/text.hpp"
#include "io/files/source_names.hpp"

namespace millrace {
namespace {

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

template <class... Values>
std::string format(const char* pattern, Values... values) {
  std::array<char, 512> text{};
  const int length = std::snprintf(text.data(), text.size(), pattern, values...);
  return {text.data(), static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(text.size()) - 1))};
}

std::string duration(std::int64_t ns) {
  const double s = seconds(ns);
  if (s < 0.9995) return format("%.0f ms", 1000 * s);
  if (s < 120) return format("%.1f s", s);
  if (s < 7200) return format("%.1f min", s / 60);
  return format("%.1f h", s / 3600);
}

/// Milliseconds in at most six characters up to 999,999 ms: 0.05, 38.80, 2349. "-" for no time.
std::string ms_text(double ns) {
  if (ns <= 0) return "-";
  const double ms = ns / 1e6;
  return format(ms < 99.995 ? "%.2f" : ms < 999.95 ? "%.1f" : "%.0f", ms);
}

/// "12 %", or "-" for a share that is not known.
std::string percent_text(const std::optional<double>& share) { return share ? format("%.0f %%", 100 * *share) : "-"; }

/// A row has 79 columns. A value that is longer than its column moves the rest of the row to the right.
std::string table_row(const Reading& reading, std::int64_t wall_ns, const std::string& label, bool waits) {
  std::string unit{to_string(reading.unit)};
  // "batches" loses "es", other units lose "s".
  if (reading.items == 1) unit.resize(unit.size() - (reading.unit == Unit::batches ? 2 : 1));
  // Shares of one time, so that they can be compared: util, no core and starved.
  auto no_core = reading.no_core();
  if (no_core) *no_core *= reading.utilisation(wall_ns);
  std::string row = format("  %-14s %9s %-8s", label.c_str(), grouped(reading.items).c_str(), unit.c_str());
  row += format(" %5.0f %% %7s %6s %6s", 100 * reading.utilisation(wall_ns), percent_text(no_core).c_str(),
                ms_text(reading.latency.quantile_ns(0.5)).c_str(), ms_text(reading.latency.quantile_ns(0.95)).c_str());
  row += waits ? format(" %5.0f %% %5.1f", 100 * reading.starved(wall_ns), reading.mean_queue(wall_ns))
               : format(" %7s %5s", "-", "-");
  return row + "\n";
}

/// "workers x4": only a resource with several stages and several servers has a number.
std::string label_of(const ResourceReading& resource) {
  const bool one_stage = resource.parts.empty();
  return resource.total.name +
         (one_stage || resource.total.servers == 1 ? "" : " x" + std::to_string(resource.total.servers));
}

std::string stage_table(const Snapshot& window) {
  std::string text = format("  %-14s %9s %-8s %7s %7s %6s %6s %7s %5s\n", "stage", "items", "", "util", "no core",
                            "p50 ms", "p95 ms", "starved", "queue");
  for (const auto& resource : window.resources) {
    // A stage or a resource that had nothing to do needs no row.
    if (resource.total.items == 0) continue;
    text += table_row(resource.total, window.time_ns, label_of(resource), !resource.waited_for_by_lanes);
    for (const auto& part : resource.parts)
      text += table_row(part, window.time_ns, "  " + part.name, !resource.in_turn && !resource.waited_for_by_lanes);
  }
  return text;
}

/// Breaks lines at spaces. Each line begins with `indent`.
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

// Only where it tells more than the rate of the whole run: in short runs.
std::string phases_text(const Snapshot& window) {
  const Phases phases = phases_of(window);
  const double rate = static_cast<double>(window.committed) / seconds(window.time_ns);
  if (!phases.steady_rate || *phases.steady_rate < 1.05 * rate) return "";
  return format("  filling the pipeline took %s and draining it %s; in between, it made %.2f pictures/s\n",
                duration(*phases.fill_ns).c_str(), duration(*phases.drain_ns).c_str(), *phases.steady_rate);
}

std::string others_text(const Verdict& verdict) {
  return verdict.other_cores ? format(", %.1f by other programs", *verdict.other_cores) : "";
}

std::string headline(const RunReport& report) {
  std::string text = grouped(report.counts.ok) + " ok, " + grouped(report.counts.failed_items()) + " failed of " +
                     count_of(report.planned, "picture") + (report.plan_complete ? "" : " known so far") + ", " +
                     count_of(report.counts.objects, "object");
  if (report.counts.resumed > 0) {
    const bool all = report.plan_complete && report.counts.resumed == report.planned;
    text += " (" + grouped(report.counts.resumed) + (report.counts.resumed == 1 ? " was" : " were") + " done before" +
            (all ? "; nothing was left to do)" : ")");
  }
  return text;
}

// The figures of NVIDIA's driver, or nothing if it gives none.
std::string gpu_text(const GpuSummary& gpu) {
  std::string said;
  const auto add = [&](const std::string& part) { said += (said.empty() ? "" : ", ") + part; };
  if (gpu.mean_utilisation) add(format("some kernel ran %.0f %% of the time", 100 * *gpu.mean_utilisation));
  if (gpu.peak_memory_bytes) add("up to " + readable_bytes(*gpu.peak_memory_bytes) + " used");
  if (gpu.mean_sm_mhz) add(format("%.0f MHz", *gpu.mean_sm_mhz));
  if (gpu.mean_power_w) add(format("%.0f W", *gpu.mean_power_w));
  if (gpu.peak_temperature_c) add(format("up to %.0f degrees", *gpu.peak_temperature_c));
  return said.empty() ? "" : "  GPU " + gpu.bus + ": " + said + "\n";
}

}  // namespace

std::string to_text(const RunReport& report, int columns, bool colour) {
  const char* bold = colour ? "\033[1m" : "";
  const char* plain = colour ? "\033[0m" : "";
  const Snapshot& window = report.window;
  const double wall_s = seconds(window.time_ns);
  std::string text = std::string(bold) + headline(report) + plain + "\n";
  for (const auto& [reason, count] : report.counts.failed) {
    text += "  failed, " + std::string(to_string(reason)) + ": " + grouped(count) + "\n";
  }
  if (const std::string skipped = report.scan.summary(); !skipped.empty())
    text += wrapped("skipped: " + skipped, columns, "  ");
  // If everything was done before, there is no time to report.
  if (window.committed > 0 && wall_s > 0) {
    text += format("  %.2f pictures/s over %s; loading %s and warm-up %s before that\n",
                   static_cast<double>(window.committed) / wall_s, duration(window.time_ns).c_str(),
                   duration(report.load_ns).c_str(), duration(report.warm_up_ns).c_str());
    text += phases_text(window);
    if (window.measured) {
      text += "\n" + stage_table(window);
      text += format("  source without credits %s of %s; cores: %.1f of %.1f used%s\n",
                     duration(window.without_credits.busy_ns).c_str(), duration(window.time_ns).c_str(),
                     seconds(window.cpu_ns) / wall_s, window.cores, others_text(report.verdict).c_str());
    }
    for (const auto& gpu : report.gpus) text += gpu_text(gpu);
    text += format("  read %s/s, results written %s/s\n",
                   readable_bytes(static_cast<double>(report.read_bytes) / wall_s).c_str(),
                   readable_bytes(static_cast<double>(report.written_bytes) / wall_s).c_str());
    std::set<std::string> compiled;  // each GPU loads a package of its own
    for (const auto& load : report.models.loads) {
      if (!load.variant.empty()) compiled.insert("  compiled " + load.package + ": " + load.variant + "\n");
    }
    for (const auto& line : compiled) text += line;
    std::string sentence = wrapped(report.verdict.sentence, columns, "");
    sentence.insert(sentence.size() - 1, plain);  // before the newline, so that bold ends on this line
    text += "\n" + std::string(bold) + sentence;
  }
  for (const auto& note : report.notes) text += wrapped("note: " + note, columns, "  ");
  for (const auto& reduced : report.reduced) {
    for (const auto& sentence : reduced.summary) text += wrapped(reduced.name + ": " + sentence, columns, "  ");
  }
  const std::string folder = display_name(report.output_folder);
  text += "\nresults  " + folder + "/segments";
  text += report.state == "stopped" ? "; the same command completes the .part files\n" : "\n";
  for (const auto& name : report.side_outputs) text += "         " + folder + "/" + name + "\n";
  for (const auto& reduced : report.reduced) text += "         " + folder + "/" + reduced.file + "\n";
  if (report.counts.failed_items() > 0) {
    // errors.jsonl has the failures of one attempt only; the counts are those of all attempts.
    const bool all = report.failed_now >= report.counts.failed_items();
    const std::string runs = folder + "/runs/";
    if (report.failed_now > 0) text += "errors   " + runs + report.run + "/errors.jsonl\n";
    if (!all) {
      text += (report.failed_now > 0 ? "         " : "errors   ") + runs +
              "*/errors.jsonl: failed pictures of earlier attempts\n";
    }
  }
  text += "report   " + folder + "/runs/" + report.run + "/report.json\n";
  return text;
}

}  // namespace millrace
