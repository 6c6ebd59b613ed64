#include "apps/serve/metrics.hpp"

#include <array>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

#include "io/files/source_names.hpp"
#include "run/host_memory.hpp"
#include "run/job.hpp"
#include "run/report.hpp"

namespace millrace {
namespace {

using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

/// The lines of families of metrics.
class Families {
 public:
  /// The samples that follow belong to this family. A counter's name ends in _total.
  void family(std::string_view name, std::string_view type, std::string_view help) {
    name_ = "millrace_" + std::string(name);
    text_ += "# HELP " + name_ + " " + std::string(help) + "\n# TYPE " + name_ + " " + std::string(type) + "\n";
  }

  void sample(Labels labels, double value) {
    std::string named;
    for (const auto& [label, content] : labels)
      named += (named.empty() ? "{" : ",") + std::string(label) + "=\"" + escaped(content) + "\"";
    std::array<char, 32> number{};
    const auto end = std::to_chars(number.data(), number.data() + number.size(), value).ptr;
    text_ += name_ + named + (named.empty() ? " " : "} ") + std::string(number.data(), end) + "\n";
  }
  void sample(Labels labels, std::int64_t value) { sample(labels, static_cast<double>(value)); }

  /// A family with one sample without labels.
  void one(std::string_view name, std::string_view type, std::string_view help, double value) {
    family(name, type, help);
    sample({}, value);
  }
  void one(std::string_view name, std::string_view type, std::string_view help, std::int64_t value) {
    one(name, type, help, static_cast<double>(value));
  }

  std::string take() { return std::move(text_); }

 private:
  static std::string escaped(std::string_view text) {
    std::string out;
    for (const char letter : to_utf8_lossy(text)) {
      if (letter == '\n') {
        out += "\\n";
      } else {
        if (letter == '\\' || letter == '"') out += '\\';
        out += letter;
      }
    }
    return out;
  }

  std::string text_, name_;
};

void add_state(Families& out, const std::string& state) {
  out.family("state", "gauge", "1 for the state of the run, 0 for the others.");
  for (const char* each : {"starting", "running", "finished", "stopped", "failed"})
    out.sample({{"state", each}}, state == each ? std::int64_t{1} : 0);
}

void add_pictures(Families& out, const RunReport& report) {
  const Counts& counts = report.counts;
  out.one("planned_pictures", "gauge", "Pictures of the plan that are known so far.", report.planned);
  out.one("plan_complete", "gauge", "1 if the scan of the input has ended, so that the plan is final.",
          std::int64_t{report.plan_complete});
  out.family("pictures_total", "counter", "Pictures with a result, with those of earlier attempts.");
  out.sample({{"outcome", "ok"}}, counts.ok);
  out.sample({{"outcome", "failed"}}, counts.failed_items());
  out.family("failed_pictures_total", "counter", "Failed pictures by reason, with those of earlier attempts.");
  for (const auto& [reason, count] : counts.failed) out.sample({{"reason", to_string(reason)}}, count);
  out.one("resumed_pictures", "gauge", "Pictures that earlier attempts finished.", counts.resumed);
  out.one("objects_total", "counter", "Objects found, with those of earlier attempts.", counts.objects);
}

void add_machine(Families& out, const Snapshot& window) {
  out.one("cpu_seconds_total", "counter", "CPU time of this program since its models were ready.",
          seconds(window.cpu_ns));
  out.one("cores", "gauge", "Cores that this program may use.", window.cores);
  const MachineTime& machine = window.machine;
  out.family(
      "machine_cpu_seconds_total", "counter",
      "Time of the cores that this program may use: busy with any program, stolen by the hypervisor, or withheld "
      "by a CPU quota.");
  const auto add = [&](Labels labels, const std::optional<std::int64_t>& ns) {
    if (ns) out.sample(labels, seconds(*ns));
  };
  add({{"mode", "busy"}}, machine.busy_ns);
  add({{"mode", "stolen"}}, machine.stolen_ns);
  add({{"mode", "throttled"}}, machine.throttled_ns);
  out.family("machine_stalled_seconds_total", "counter", "Time in which some thread of the machine waited for this.");
  add({{"resource", "cpu"}}, machine.cpu_stall_ns);
  add({{"resource", "memory"}}, machine.memory_stall_ns);
  add({{"resource", "io"}}, machine.io_stall_ns);
}

/// Calls `visit(stage, resource)` for each stage. A resource without parts is a stage itself.
template <class Visit>
void each_stage(const Snapshot& window, const Visit& visit) {
  for (const ResourceReading& resource : window.resources) {
    if (resource.parts.empty()) visit(resource.total, resource);
    for (const Reading& part : resource.parts) visit(part, resource);
  }
}

void add_resources(Families& out, const Snapshot& window) {
  const auto family = [&](const char* name, const char* type, const char* help, auto value) {
    out.family(name, type, help);
    for (const ResourceReading& resource : window.resources) {
      const std::optional<double> known = value(resource);
      if (known) out.sample({{"resource", resource.total.name}}, *known);
    }
  };
  using Known = std::optional<double>;
  family("resource_concurrency", "gauge", "Items that a resource can process at a time.",
         [](const ResourceReading& it) { return Known(it.total.servers); });
  family("resource_busy_seconds_total", "counter", "Time in which a resource worked, summed over its threads.",
         [](const ResourceReading& it) { return Known(seconds(it.total.busy_ns)); });
  family(
      "resource_starved_seconds_total", "counter", "Time without work to do, summed over the threads.",
      [](const ResourceReading& it) { return it.waited_for_by_lanes ? Known() : Known(seconds(it.total.starved_ns)); });
  family("resource_no_core_seconds_total", "counter", "The part of the busy time in which threads waited for a core.",
         [](const ResourceReading& it) {
           return it.waited_for_by_lanes || it.total.measured_ns == 0 ? Known() : Known(seconds(it.total.no_core_ns));
         });

  const auto stages = [&](const char* name, const char* help, auto value) {
    out.family(name, "counter", help);
    each_stage(window, [&](const Reading& stage, const ResourceReading& resource) {
      out.sample({{"stage", stage.name}, {"resource", resource.total.name}}, value(stage));
    });
  };
  stages("stage_items_total", "Pictures or batches that a stage has processed, failed ones included.",
         [](const Reading& it) { return static_cast<double>(it.items); });
  stages("stage_failed_items_total", "Pictures or batches that failed in a stage.",
         [](const Reading& it) { return static_cast<double>(it.failed); });
  stages("stage_busy_seconds_total", "Time in which a stage worked, summed over its threads.",
         [](const Reading& it) { return seconds(it.busy_ns); });
  out.family("queue_items", "gauge", "Pictures or batches that wait at a place now.");
  for (const Reading* place : waiting_places(window)) out.sample({{"place", place->name}}, place->queue_length);
}

void add_window(Families& out, const RunReport& report) {
  const Snapshot& window = report.window;
  out.one("run_seconds_total", "counter", "Time since the models were ready.", seconds(window.time_ns));
  out.one("in_flight_pictures", "gauge", "Pictures in the pipeline.", window.in_flight);
  add_machine(out, window);
  if (!window.measured) return;
  out.family("source_waiting_seconds_total", "counter",
             "Time in which the source waited: for input, or for what this option limits.");
  out.sample({{"for", "input"}}, seconds(window.input.busy_ns));
  out.sample({{"for", "gate.frames"}}, seconds(window.credit_waits.frames_ns));
  out.sample({{"for", "read.ahead"}}, seconds(window.credit_waits.read_ahead_ns));
  out.sample({{"for", "gate.memory"}}, seconds(window.credit_waits.bytes_ns));
  add_resources(out, window);
}

}  // namespace

std::string metrics_of_start(const std::string& state) {
  Families out;
  add_state(out, state);
  return out.take();
}

std::string metrics_of(const RunReport& report, const std::string& state) {
  Families out;
  out.family("info", "gauge", "1; the labels name the program and the attempt.");
  out.sample({{"version", MILLRACE_VERSION}, {"run", report.run}}, std::int64_t{1});
  add_state(out, state);
  add_pictures(out, report);
  out.one("model_load_seconds_total", "counter", "Time to load models.", seconds(report.load_ns));
  out.one("warm_up_seconds_total", "counter", "Time to warm models up, until the last lane is ready.",
          seconds(report.warm_up_ns));
  out.one("read_bytes_total", "counter", "Bytes of picture files that were read.", report.read_bytes);
  out.one("written_bytes_total", "counter", "Bytes of results that were written.", report.written_bytes);
  if (const auto bytes = resident_memory())
    out.one("resident_memory_bytes", "gauge", "Resident memory of this program.", *bytes);
  out.family("calls_total", "counter", "Counters of the stages, as in `calls` of report.json.");
  for (const auto& [name, count] : report.calls) out.sample({{"counter", name}}, count);
  if (report.window.planned > 0) add_window(out, report);
  return out.take();
}

}  // namespace millrace
