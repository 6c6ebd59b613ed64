#include "run/sample_files.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/json.hpp"
#include "io/files/files.hpp"
#include "io/input/source.hpp"
#include "run/timeline.hpp"
#include "stages/sinks/sink.hpp"

namespace millrace {
namespace {

namespace fs = std::filesystem;

double digits_of(std::int64_t number) { return digits_between(number, number + 1); }

double in_blocks(double bytes, std::int64_t block) {
  const auto size = static_cast<double>(block);
  return std::ceil(bytes / size) * size;
}

void add_file(FileSizes& sizes, const fs::directory_entry& file) {
  ++sizes.files;
  sizes.bytes += static_cast<double>(file.file_size());
}

/// Calls `take` with the bytes of each line of a file, newline included.
template <class Take>
void each_line(const fs::path& file, const Take& take) {
  std::ifstream stream(file, std::ios::binary);
  for (std::string line; std::getline(stream, line);) take(static_cast<double>(line.size() + 1), line);
}

void read_segments(const fs::path& folder, SampleFiles& found) {
  // Sorted, because the ids of the lines count through all files.
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    if (name.ends_with(".manifest.json")) {
      add_file(found.manifests, file);
    } else if (name.ends_with(".jsonl")) {
      files.push_back(file.path());
    } else {
      add_file(found.columns, file);
    }
  }
  std::ranges::sort(files);
  for (const auto& file : files) {
    each_line(file, [&](double bytes, const std::string&) { found.lines.add(bytes - digits_of(found.pictures++)); });
  }
}

void read_plan(const fs::path& folder, SampleFiles& found) {
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(folder)) {
    if (file.path().extension() == ".jsonl") {
      files.push_back(file.path());
    } else {
      add_file(found.plan, file);
    }
  }
  std::ranges::sort(files);
  for (const auto& file : files) {
    bool head = true;
    each_line(file, [&](double bytes, const std::string& line) {
      if (head) {
        ++found.plan_heads.files;
        found.plan_heads.bytes += bytes;
      } else {
        found.plan_lines.add(bytes - digits_of(found.plan_lines.count()));
        ++found.views[nlohmann::json::parse(line).value("view", default_view)];
      }
      head = false;
    });
  }
}

void read_resources(const fs::path& file, SampleFiles& found) {
  Spread rows;
  each_line(file, [&](double bytes, const std::string&) {
    if (found.header_bytes == 0) {
      found.header_bytes = bytes;
    } else {
      rows.add(bytes);
    }
  });
  if (rows.count() > 0) found.row_bytes = rows.mean();
}

void read_timeline(const fs::path& file, SampleFiles& found) {
  constexpr std::int64_t largest = 4 << 20;
  const std::string text = read_text_file(file.string(), largest);
  const auto timeline = timeline_from_json(text);
  if (timeline.is_null()) return;
  found.timeline_bytes = static_cast<double>(text.size());
  found.timeline_batches = static_cast<double>(timeline.at("batches").size());
}

void read_attempt(const fs::path& folder, SampleFiles& found) {
  for (const auto& file : fs::directory_iterator(folder)) {
    const std::string name = file.path().filename().string();
    if (name == "resources.csv") {
      read_resources(file.path(), found);
    } else if (name == "timeline.json") {
      read_timeline(file.path(), found);
    } else if (name == "report.html") {
      found.page_bytes = static_cast<double>(file.file_size());
    } else if (name == "errors.jsonl") {
      each_line(file.path(), [&](double bytes, const std::string&) { found.error_lines.add(bytes); });
    } else {
      found.recording = found.recording || name == "recording.json";
      add_file(found.attempt, file);
    }
  }
  // Pictures that did not fail have no line.
  while (found.error_lines.count() < found.pictures) found.error_lines.add(0);
}

PictureFiles read_pictures(const fs::path& folder, const SampleFiles& sample) {
  PictureFiles found{.name = folder.filename().string()};
  std::map<fs::path, std::int64_t> files_in{{folder, 0}};
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_directory()) {
      files_in.emplace(entry.path(), 0);
      continue;
    }
    const auto bytes = static_cast<double>(entry.file_size());
    found.bytes.add(bytes);
    found.disk_bytes.add(in_blocks(bytes, sample.block_bytes));
    found.files.add(1);
    ++files_in[entry.path().parent_path()];
  }
  found.folders = static_cast<std::int64_t>(files_in.size());
  for (const auto& [path, files] : files_in) found.lone += files == 1 ? 1 : 0;
  // Failed pictures have no file.
  while (found.files.count() < sample.pictures) {
    for (Spread* spread : {&found.bytes, &found.disk_bytes, &found.files}) spread->add(0);
  }
  return found;
}

void add_tree(FileSizes& sizes, const fs::path& folder) {
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_directory()) add_file(sizes, entry);
  }
}

/// The sink that wrote `name` into the output folder, or null.
const SinkEntry* sink_of(const std::string& name) {
  for (const SinkEntry& sink : sink_table()) {
    // coco.json may have numbered parts.
    if (std::ranges::find(sink.outputs, name) != sink.outputs.end() || name.starts_with(sink.name + "-")) return &sink;
  }
  return nullptr;
}

}  // namespace

SampleFiles read_sample(const std::string& output) {
  struct statvfs system {};
  if (::statvfs(output.c_str(), &system) != 0) throw StorageError("look at the file system of", output, errno);
  SampleFiles found;
  found.block_bytes = std::max<std::int64_t>(static_cast<std::int64_t>(system.f_frsize), 1);
  read_segments(output + "/segments", found);
  read_plan(output + "/plan", found);
  found.folders = 4;  // the output, segments/, plan/ and runs/
  for (const auto& attempt : fs::directory_iterator(output + "/runs")) {
    ++found.folders;
    read_attempt(attempt.path(), found);
  }
  for (const auto& entry : fs::directory_iterator(output)) {
    const std::string name = entry.path().filename().string();
    const SinkEntry* const sink = sink_of(name);
    if (sink != nullptr && sink->make != nullptr && entry.is_directory()) {
      found.sinks.push_back(read_pictures(entry.path(), found));
    } else if (sink != nullptr) {
      found.whole_name = sink->name;
      if (entry.is_directory()) {
        ++found.folders;
        add_tree(found.whole, entry.path());
      } else {
        add_file(found.whole, entry);
      }
    } else if (name == "reduced") {
      ++found.folders;
      add_tree(found.reduced, entry.path());
    }
  }
  std::ranges::sort(found.sinks, {}, &PictureFiles::name);
  return found;
}

}  // namespace millrace
