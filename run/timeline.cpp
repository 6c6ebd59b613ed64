#include "run/timeline.hpp"

#include <stdexcept>

#include "base/json.hpp"
#include "io/files/json_writer.hpp"

namespace millrace {
namespace {

using Json = nlohmann::json;

constexpr int version = 1;
constexpr std::size_t max_names = 4096;
constexpr std::size_t before_stages = 5;  // numbers of a batch before those of its stages

double seconds(std::int64_t ns) { return static_cast<double>(ns) / 1e9; }

void write_names(const char* key, const std::vector<std::string>& names, JsonWriter& json) {
  json.key(key).begin_array();
  for (const auto& name : names) json.value(name);
  json.end_array();
}

[[noreturn]] void refuse() { throw std::out_of_range(""); }

double number(const Json& json, double low, double high) {
  const auto value = json.get<double>();
  if (!(value >= low && value <= high)) refuse();
  return value;
}

double whole(const Json& json, double low, double high) {
  if (!json.is_number_integer()) refuse();
  return number(json, low, high);
}

std::vector<std::string> names_from(const Json& json, std::size_t least) {
  auto names = json.get<std::vector<std::string>>();
  if (names.size() < least || names.size() > max_names) refuse();
  return names;
}

void check_batch(const Json& batch, double lanes, double views, std::size_t stages) {
  constexpr double many = 1e15, longest = 1e12;
  if (!batch.is_array() || batch.size() != before_stages + stages) refuse();
  whole(batch[0], 0, lanes - 1);
  whole(batch[1], 0, many);
  whole(batch[2], 0, many);
  whole(batch[3], 0, views - 1);
  number(batch[4], -longest, longest);
  for (std::size_t i = before_stages; i < batch.size(); ++i) number(batch[i], 0, longest);
}

/// Keeps the members that are known, with the types that the page expects.
Json checked(const Json& json) {
  constexpr double longest_s = 1e9;
  if (json.at("version") != version) refuse();
  const auto stages = names_from(json.at("stages"), 1), views = names_from(json.at("views"), 1);
  const double lanes = whole(json.at("lanes"), 1, 4096);
  const Json &batches = json.at("batches"), &cut = json.at("cut");
  if (!batches.is_array() || batches.empty() || batches.size() > 2 * LaneTimeline::most) refuse();
  for (const Json& batch : batches) check_batch(batch, lanes, static_cast<double>(views.size()), stages.size());
  if (!cut.is_null()) {
    const double begun = number(cut.at("from_s"), -longest_s, longest_s);
    number(cut.at("to_s"), begun, longest_s);
    number(cut.at("batches"), 1, 1e15);
  }
  const double begun = number(json.at("begun_s"), -longest_s, longest_s);
  number(json.at("ended_s"), begun, longest_s);
  Json kept;
  for (const char* key : {"lanes", "stages", "views", "begun_s", "ended_s", "cut", "batches"}) kept[key] = json.at(key);
  return kept;
}

}  // namespace

std::string to_json(const LaneTimeline::Kept& kept, const TimelineFacts& facts) {
  constexpr int of_s = 6, of_ms = 3;  // decimals: a microsecond is exact enough
  const auto at = [&](std::int64_t ns) { return seconds(ns - facts.zero_ns); };
  JsonWriter json;
  json.begin_object().key("version").value(version).key("lanes").value(facts.lanes);
  write_names("stages", facts.stages, json);
  write_names("views", facts.views, json);
  json.key("begun_s").rounded(at(facts.begun_ns), of_s).key("ended_s").rounded(at(facts.ended_ns), of_s).key("cut");
  if (kept.left_out == 0) {
    json.null();
  } else {
    json.begin_object().key("from_s").rounded(at(kept.cut_begun_ns), of_s);
    json.key("to_s").rounded(at(kept.cut_ended_ns), of_s).key("batches").value(kept.left_out).end_object();
  }
  json.key("batches").begin_array();
  for (std::size_t i = 0; i < kept.entries.size(); ++i) {
    const auto& entry = kept.entries[i];
    const auto moments = kept.moments_of(i);
    json.begin_array().value(entry.lane).value(entry.batch).value(entry.frames).value(entry.group);
    json.rounded(at(moments.front()), of_s);
    for (std::size_t stage = 1; stage < moments.size(); ++stage)
      json.rounded(1e3 * seconds(moments[stage] - moments[stage - 1]), of_ms);
    json.end_array();
  }
  json.end_array().end_object();
  return json.take();
}

Json timeline_from_json(std::string_view text) {
  // Copying JSON with millions of levels would overflow the stack.
  const auto not_too_deep = [](int depth, Json::parse_event_t /*event*/, Json& /*parsed*/) { return depth <= 4; };
  try {
    return checked(Json::parse(text, not_too_deep));
  } catch (const Json::exception&) {
    return nullptr;
  } catch (const std::out_of_range&) {
    return nullptr;
  }
}

}  // namespace millrace
