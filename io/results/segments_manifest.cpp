#include "io/results/segments_manifest.hpp"

#include <fcntl.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>

#include "base/json.hpp"

namespace millrace {
namespace {

// `check` covers the text, so parsing and writing must keep the order of the keys.
using Json = nlohmann::ordered_json;

/// A manifest has some hundred bytes, so a larger file is not read.
constexpr std::int64_t manifest_limit_bytes = 1 << 20;
constexpr std::string_view column_suffix = ".f16";

Json to_json(const Manifest& manifest) {
  Json failed = Json::object();
  for (const auto& [reason, count] : manifest.counts.failed) failed[std::string(to_string(reason))] = count;
  Json json{{"schema", Manifest::schema},
            {"segment", manifest.segment},
            {"revision", manifest.revision},
            {"plan", manifest.plan_hash},
            {"items_hash", manifest.items_hash},
            {"items", manifest.counts.items},
            {"first_item", manifest.first_item},
            {"last_item", manifest.last_item},
            {"ok", manifest.counts.ok},
            {"failed", failed},
            {"objects", manifest.counts.objects},
            {"bytes", manifest.bytes},
            {"xxh3", manifest.xxh3}};
  for (const auto& column : manifest.columns) {
    json["columns"].push_back({{"name", column.name},
                               {"rows", column.rows},
                               {"width", column.width},
                               {"bytes", column.bytes()},
                               {"xxh3", column.xxh3}});
  }
  return json;
}

Manifest from_json(const Json& json) {
  Manifest manifest;
  manifest.segment = json.at("segment").get<std::int64_t>();
  manifest.revision = json.at("revision").get<int>();
  manifest.plan_hash = json.at("plan").get<std::string>();
  manifest.items_hash = json.at("items_hash").get<std::string>();
  manifest.first_item = json.at("first_item").get<std::int64_t>();
  manifest.last_item = json.at("last_item").get<std::int64_t>();
  manifest.counts.items = json.at("items").get<std::int64_t>();
  manifest.counts.ok = json.at("ok").get<std::int64_t>();
  for (const auto& [reason, count] : json.at("failed").items()) {
    manifest.counts.failed[reason_from_string(reason)] = count.get<std::int64_t>();
  }
  manifest.counts.objects = json.at("objects").get<std::int64_t>();
  manifest.bytes = json.at("bytes").get<std::int64_t>();
  manifest.xxh3 = json.at("xxh3").get<std::string>();
  for (const auto& column : json.value("columns", Json::array())) {
    manifest.columns.push_back({column.at("name").get<std::string>(), column.at("rows").get<std::int64_t>(),
                                column.at("width").get<int>(), column.at("xxh3").get<std::string>()});
  }
  return manifest;
}

}  // namespace

std::int64_t Counts::failed_items() const { return items - ok; }

void Counts::add(const Counts& other) {
  items += other.items;
  ok += other.ok;
  for (const auto& [reason, count] : other.failed) failed[reason] += count;
  objects += other.objects;
  resumed += other.resumed;
}

void Counts::add(bool item_ok, Reason reason, std::int64_t item_objects) {
  ++items;
  if (item_ok) {
    ++ok;
  } else {
    ++failed[reason];
  }
  objects += item_objects;
}

std::string Manifest::to_text() const {
  Json json = to_json(*this);
  json["check"] = xxh3_64_hex(json.dump());
  return json.dump() + "\n";
}

std::optional<Manifest> Manifest::from_text(std::string_view text) {
  try {
    Json json = Json::parse(text);
    const auto check = json.at("check").get<std::string>();
    json.erase("check");
    // The check comes before the schema: damage to "schema" must not look like another version.
    if (xxh3_64_hex(json.dump()) != check) return std::nullopt;
    if (json.at("schema").get<int>() != schema) {
      throw OutputMismatchError("segment " + json.at("segment").dump() + " has schema " + json.at("schema").dump() +
                                ", this program reads " + std::to_string(schema) +
                                ": use the version that wrote it, or another output folder");
    }
    return from_json(json);
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  } catch (const std::invalid_argument&) {
    // From reason_from_string(): a reason that this program does not know.
    return std::nullopt;
  }
}

std::string SegmentFile::name() const {
  std::array<char, 32> number{};
  std::snprintf(number.data(), number.size(), "%06lld", static_cast<long long>(segment));
  std::string text = number.data();
  if (revision > 0) text += ".r" + std::to_string(revision);
  switch (kind) {
    case Kind::data:
      return text + ".jsonl";
    case Kind::manifest:
      return text + ".manifest.json";
    case Kind::journal:
      return text + ".part";
    case Kind::column:
      return text + "." + column + std::string(column_suffix);
  }
  return text;
}

std::optional<SegmentFile> SegmentFile::from_name(std::string_view name) {
  SegmentFile file;
  const std::size_t dot = name.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  std::from_chars(name.data(), name.data() + dot, file.segment);
  std::string_view rest = name.substr(dot);
  if (const std::size_t end = rest.find('.', 1); rest.starts_with(".r") && end != std::string_view::npos) {
    // Otherwise it is a column whose name begins like that of a revision.
    const auto [stop, error] = std::from_chars(rest.data() + 2, rest.data() + end, file.revision);
    if (error == std::errc() && stop == rest.data() + end) rest.remove_prefix(end);
  }
  if (rest == ".manifest.json") file.kind = Kind::manifest;
  if (rest == ".part") file.kind = Kind::journal;
  if (rest.ends_with(column_suffix) && rest.size() > column_suffix.size()) {
    file.column = rest.substr(1, rest.size() - 1 - column_suffix.size());
    if (is_column_name(file.column)) file.kind = Kind::column;
  }
  // Only names that name() would give: no signs, no missing or extra zeros.
  if (file.segment < 0 || file.revision < 0 || file.name() != name) return std::nullopt;
  return file;
}

std::string segments_folder(const std::string& out_folder) { return out_folder + "/segments"; }

std::optional<Manifest> read_manifest(const std::string& out_folder, const SegmentFile& file,
                                      std::string_view plan_hash, const FileSystem& files) {
  const std::string path = segments_folder(out_folder) + "/" + file.name();
  auto manifest = Manifest::from_text(read_text_file(path, manifest_limit_bytes, files));
  // A valid manifest under a wrong name, such as a copy, counts as damaged.
  if (!manifest || manifest->segment != file.segment || manifest->revision != file.revision) return std::nullopt;
  if (!plan_hash.empty() && manifest->plan_hash != plan_hash) {
    throw OutputMismatchError("'" + path + "' belongs to plan " + manifest->plan_hash + ", this run has plan " +
                              std::string(plan_hash) +
                              ": run with the settings and inputs of that plan, or choose another output folder");
  }
  return manifest;
}

std::optional<std::string> length_problem(const std::string& out_folder, const Manifest& manifest,
                                          const FileSystem& files) {
  const auto problem_of = [&](const SegmentFile& file, std::int64_t planned) -> std::optional<std::string> {
    const std::string path = segments_folder(out_folder) + "/" + file.name();
    try {
      const std::int64_t bytes = File(path, O_RDONLY, files).size();
      if (bytes == planned) return std::nullopt;
      return "'" + path + "' has " + std::to_string(bytes) + " bytes; its segment manifest says " +
             std::to_string(planned);
    } catch (const StorageError& error) {
      if (error.error_number() != ENOENT) throw;
      return "'" + path + "' is missing, but its manifest exists";
    }
  };
  SegmentFile file{manifest.segment, manifest.revision, SegmentFile::Kind::data};
  if (auto problem = problem_of(file, manifest.bytes)) return problem;
  file.kind = SegmentFile::Kind::column;
  for (const auto& column : manifest.columns) {
    file.column = column.name;
    if (auto problem = problem_of(file, column.bytes())) return problem;
  }
  return std::nullopt;
}

}  // namespace millrace
