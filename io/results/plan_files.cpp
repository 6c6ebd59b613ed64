#include "io/results/plan_files.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>

#include "io/files/base64.hpp"
#include "io/files/json_writer.hpp"
#include "io/files/source_names.hpp"
#include "io/input/source_inputs.hpp"
#include "io/results/json_line.hpp"

namespace millrace {
namespace {

using nlohmann::json;

constexpr int schema = 1;
/// A larger file of the plan is not read into memory.
constexpr std::int64_t largest_file = 4LL << 30;
/// read_headers() reads only this much of a segment. A header has some 400 bytes.
constexpr std::size_t longest_header = 4096;

/// The object as text, with a hash of its values. nlohmann::json sorts keys, so their order in a file is free.
std::string seal(json object) {
  object["sha256"] = sha256_hex(object.dump());
  return object.dump();
}

/// The names are examples for people, so lossy text is enough.
json tally_json(const Tally& tally) {
  json first = json::array();
  for (const std::string& name : tally.first) first.push_back(to_utf8_lossy(name));
  return {{"count", tally.count}, {"first", first}};
}

Tally tally_from(const json& object) {
  return {object.at("count").get<std::int64_t>(), object.at("first").get<std::vector<std::string>>()};
}

Item item_from(const json& line, const std::vector<std::string>& views) {
  Item item;
  item.id = line.at("id").get<std::int64_t>();
  const auto exact = line.find("path_b64");
  item.path =
      exact != line.end() ? from_base64(exact->get_ref<const std::string&>()) : line.at("path").get<std::string>();
  item.bytes = line.at("bytes").get<std::int64_t>();
  item.mtime_ns = line.at("mtime_ns").get<std::int64_t>();
  // The plan names the view, because its index depends on the order in the recipe.
  const auto& name = line.at("view").get_ref<const std::string&>();
  const auto view = std::find(views.begin(), views.end(), name);
  if (view == views.end()) throw std::runtime_error("the view '" + display_name(name) + "' is not in the recipe");
  item.view = static_cast<int>(view - views.begin());
  if (const auto boxes = line.find("boxes"); boxes != line.end()) {
    auto& prompts = item.boxes.emplace();
    for (const json& box : *boxes) {
      prompts.push_back({box.at(0).get<float>(), box.at(1).get<float>(), box.at(2).get<float>(), box.at(3).get<float>(),
                         box.at(4).get<int>()});
    }
  }
  return item;
}

// A list of plain values counts as one value, as the user wrote it.
bool is_leaf(const json& value) {
  return !value.is_structured() || value.empty() ||
         (value.is_array() &&
          std::none_of(value.begin(), value.end(), [](const json& part) { return part.is_structured(); }));
}

// The key as users know it, without the names that the plan puts around settings.
std::string known_key(std::string_view key) {
  for (const std::string_view ours : {"settings.options.", "settings.packages.", "settings.", "source."}) {
    if (key.starts_with(ours)) return std::string(key.substr(ours.size()));
  }
  return std::string(key);
}

void flatten(const json& value, const std::string& key, std::map<std::string, std::string>& leaves) {
  if (!is_leaf(value)) {
    for (const auto& [name, part] : value.items()) {
      flatten(part, value.is_array() ? key + "[" + name + "]" : key.empty() ? name : key + "." + name, leaves);
    }
  } else {
    leaves[key] = value.dump(-1, ' ', false, json::error_handler_t::replace);
  }
}

std::string hash_of_hashes(const std::vector<std::string>& hashes) {
  std::string all;
  for (const std::string& hash : hashes) all += hash + "\n";
  return sha256_hex(all);
}

}  // namespace

std::string plan_segment_name(std::int64_t index) {
  std::array<char, 32> name{};
  std::snprintf(name.data(), name.size(), "%06lld.jsonl", static_cast<long long>(index));
  return name.data();
}

std::optional<std::string> picture_root(const json& plan) {
  const json::json_pointer root("/source/root");
  return plan.contains(root) ? bytes_from_json(plan.at(root)) : std::nullopt;
}

std::string plan_hash(const json& plan) { return sha256_hex(plan.dump()); }

std::string item_line(const Item& item, const std::vector<std::string>& views) {
  JsonWriter line;
  line.begin_object().key("id").value(item.id);
  write_path("path", item.path, line);
  line.key("bytes").value(item.bytes).key("mtime_ns").value(item.mtime_ns);
  line.key("view").value(views.at(static_cast<std::size_t>(item.view)));
  if (item.boxes) {
    line.key("boxes").begin_array();
    for (const PromptBox& box : *item.boxes) {
      line.begin_array().value(box.x).value(box.y).value(box.width).value(box.height).value(box.class_id).end_array();
    }
    line.end_array();
  }
  line.end_object();
  return line.take() + "\n";
}

std::vector<std::string> json_differences(const json& planned, const json& now) {
  std::map<std::string, std::string> before;
  std::map<std::string, std::string> after;
  flatten(planned, "", before);
  flatten(now, "", after);
  std::vector<std::string> differences;
  for (const auto& [key, value] : before) {
    const auto found = after.find(key);
    if (found == after.end()) {
      differences.push_back(known_key(key) + ": " + value + " in the plan, not given now");
    } else if (found->second != value) {
      differences.push_back(known_key(key) + ": " + value + " in the plan, " + found->second + " now");
    }
  }
  for (const auto& [key, value] : after) {
    if (!before.contains(key)) differences.push_back(known_key(key) + ": not in the plan, " + value + " now");
  }
  return differences;
}

PlanFiles::PlanFiles(const std::string& out_folder, const FileSystem& files)
    : files_(files), out_folder_(out_folder), folder_(join_path(out_folder, "plan")) {}

void PlanFiles::damaged(const std::string& name, const std::string& why) const {
  throw PlanDamaged("'" + display_name(join_path(folder_, name)) + "' " + why +
                    ": the plan was changed or damaged after it was written. Restore that file, or start over with a "
                    "new output folder");
}

std::string PlanFiles::read(const std::string& name) const {
  return read_text_file(join_path(folder_, name), largest_file, files_);
}

json PlanFiles::unseal(const std::string& text, const std::string& name) const {
  json object = json::parse(text, nullptr, false);
  if (!object.is_object() || !object.contains("sha256")) damaged(name, "is not what this program writes");
  const json hash = object["sha256"];
  object.erase("sha256");
  if (hash != sha256_hex(object.dump(-1, ' ', false, json::error_handler_t::replace))) {
    damaged(name, "does not agree with its own hash");
  }
  if (object.value("schema", 0) != schema) {
    throw PlanMismatch("'" + display_name(join_path(folder_, name)) + "' has schema " +
                       object.value("schema", json()).dump() +
                       ", this program reads schema 1: use the version that wrote it, or a new output folder");
  }
  return object;
}

std::optional<json> PlanFiles::read_plan() const {
  if (!file_exists(join_path(folder_, "plan.json"), files_)) return {};
  return unseal(read("plan.json"), "plan.json");
}

PlanSegmentHeader PlanFiles::parse_header(const std::string& line, std::int64_t index,
                                          const std::string& plan_hash) const {
  const std::string name = plan_segment_name(index);
  const json object = unseal(line, name);
  try {
    PlanSegmentHeader header;
    header.index = object.at("segment").get<std::int64_t>();
    header.first_id = object.at("first_id").get<std::int64_t>();
    header.items = object.at("items").get<std::int64_t>();
    header.bytes = object.at("bytes").get<std::int64_t>();
    header.pass = object.at("pass").get<int>();
    header.last = {object.at("input").get<int>(), object.at("line").get<std::int64_t>()};
    header.chain = object.at("chain").get<std::string>();
    header.items_sha256 = object.at("items_sha256").get<std::string>();
    if (object.at("plan") != plan_hash) damaged(name, "belongs to another plan");
    if (header.index != index) damaged(name, "is segment " + std::to_string(header.index) + " under another name");
    return header;
  } catch (const json::exception&) {
    damaged(name, "has a first line that is not what this program writes");
  }
}

std::vector<PlanSegmentHeader> PlanFiles::read_headers(const std::string& plan_hash) const {
  std::vector<PlanSegmentHeader> headers;
  std::string start(longest_header, '\0');
  std::int64_t next_id = 0;
  for (std::int64_t index = 0;; ++index) {
    const std::string name = plan_segment_name(index);
    const std::string path = join_path(folder_, name);
    if (!file_exists(path, files_)) return headers;
    const std::size_t got = File(path, O_RDONLY, files_).read_at(start, 0);
    const std::string_view text(start.data(), got);
    headers.push_back(parse_header(std::string(text.substr(0, text.find('\n'))), index, plan_hash));
    if (headers.back().first_id != next_id) damaged(name, "does not follow the segment before it");
    next_id += headers.back().items;
  }
}

std::optional<PlanEnd> PlanFiles::read_end(const std::string& plan_hash,
                                           const std::vector<PlanSegmentHeader>& headers) const {
  if (!file_exists(join_path(folder_, "end.json"), files_)) return {};
  const json object = unseal(read("end.json"), "end.json");
  try {
    PlanEnd end;
    end.items = object.at("items").get<std::int64_t>();
    end.bytes = object.at("bytes").get<std::int64_t>();
    end.segments = object.at("segments").get<std::int64_t>();
    end.passes = object.at("passes").get<int>();
    end.lists = object.at("lists");
    for (std::size_t i = 0; i < skip_count; ++i) {
      end.counts.skipped[i] = tally_from(object.at("skipped").at(std::string(to_string(static_cast<Skip>(i)))));
    }
    end.counts.videos = tally_from(object.at("videos"));
    end.counts.empty_inputs = tally_from(object.at("empty_inputs"));
    end.counts.not_selected = object.at("not_selected").get<std::int64_t>();
    if (object.at("plan") != plan_hash) damaged("end.json", "belongs to another plan");
    const auto on_disk = static_cast<std::int64_t>(headers.size());
    // More segments than end.json knows are of an --add-new that was cut off (StoredPlan::is_whole).
    if (on_disk < end.segments) damaged(plan_segment_name(on_disk), "is missing");
    std::vector<std::string> hashes;
    for (std::int64_t i = 0; i < end.segments; ++i) hashes.push_back(headers[static_cast<std::size_t>(i)].items_sha256);
    if (object.at("segments_sha256") != hash_of_hashes(hashes)) damaged("end.json", "was written for other segments");
    return end;
  } catch (const json::exception&) {
    damaged("end.json", "is not what this program writes");
  }
}

PlannedSegment PlanFiles::read_segment(std::int64_t index, const std::string& plan_hash,
                                       const std::vector<std::string>& views) const {
  const std::string name = plan_segment_name(index);
  const std::string text = read(name);
  const std::size_t head = std::min(text.find('\n'), text.size());
  const PlanSegmentHeader header = parse_header(text.substr(0, head), index, plan_hash);
  const std::string_view lines = std::string_view(text).substr(std::min(head + 1, text.size()));
  if (sha256_hex(lines) != header.items_sha256) damaged(name, "has items that do not agree with its hash");
  PlannedSegment segment{index, {}, header.items_sha256};
  segment.items.reserve(static_cast<std::size_t>(header.items));
  try {
    for (std::size_t at = 0; at < lines.size();) {
      const std::size_t end = std::min(lines.find('\n', at), lines.size());
      segment.items.push_back(item_from(json::parse(lines.substr(at, end - at)), views));
      at = end + 1;
    }
  } catch (const std::exception& error) {
    damaged(name, std::string("cannot be read (") + error.what() + ")");
  }
  return segment;
}

void PlanFiles::write_plan(const json& plan) {
  make_folder(folder_, files_);
  // make_folder() does not sync the name of a folder that a killed attempt has made.
  sync_folder(out_folder_, files_);
  // Indented, because people read this file. The hash covers the values, not the layout.
  write_durably(folder_, "plan.json", json::parse(seal(plan)).dump(2) + "\n", files_);
}

void PlanFiles::write_segment(const PlanSegmentHeader& header, const std::string& item_lines,
                              const std::string& plan_hash) {
  const json object{{"schema", schema},
                    {"plan", plan_hash},
                    {"segment", header.index},
                    {"first_id", header.first_id},
                    {"items", header.items},
                    {"bytes", header.bytes},
                    {"pass", header.pass},
                    {"input", header.last.input},
                    {"line", header.last.line},
                    {"chain", header.chain},
                    {"items_sha256", header.items_sha256}};
  write_durably(folder_, plan_segment_name(header.index), seal(object) + "\n" + item_lines, files_);
}

void PlanFiles::write_end(const PlanEnd& end, const std::string& plan_hash,
                          const std::vector<std::string>& segment_hashes) {
  json skipped;
  for (std::size_t i = 0; i < skip_count; ++i) {
    skipped[std::string(to_string(static_cast<Skip>(i)))] = tally_json(end.counts.skipped[i]);
  }
  const json object{{"schema", schema},
                    {"plan", plan_hash},
                    {"items", end.items},
                    {"bytes", end.bytes},
                    {"segments", end.segments},
                    {"passes", end.passes},
                    {"lists", end.lists},
                    {"segments_sha256", hash_of_hashes(segment_hashes)},
                    {"skipped", skipped},
                    {"videos", tally_json(end.counts.videos)},
                    {"empty_inputs", tally_json(end.counts.empty_inputs)},
                    {"not_selected", end.counts.not_selected}};
  write_durably(folder_, "end.json", json::parse(seal(object)).dump(2) + "\n", files_);
}

}  // namespace millrace
