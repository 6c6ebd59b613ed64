#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "run/figures.hpp"

namespace millrace {

struct FileSizes {
  std::int64_t files = 0;
  double bytes = 0;
};

/// The files of a sink with a file for each picture.
struct PictureFiles {
  std::string name{};                     ///< of their folder
  Spread bytes{}, disk_bytes{}, files{};  ///< by picture; disk_bytes are whole blocks of the file system
  std::int64_t folders = 0;
  std::int64_t lone = 0;  ///< those of the folders with one file
};

/// The files of the output of a run over a sample.
struct SampleFiles {
  std::int64_t pictures = 0;
  std::int64_t block_bytes = 1;              ///< of the file system
  Spread lines, plan_lines, error_lines;     ///< bytes by picture; the first two without the digits of the id
  FileSizes manifests, columns, plan_heads;  ///< of segments; plan_heads are the first lines of their plans
  FileSizes plan, attempt;                   ///< other files of plan/ and of runs/
  double page_bytes = 0;                     ///< report.html
  double timeline_bytes = 0;                 ///< timeline.json; 0: the attempt has none
  double timeline_batches = 0;               ///< of timeline.json
  double header_bytes = 0;                   ///< of resources.csv
  std::optional<double> row_bytes;           ///< of resources.csv; empty: it has no row
  bool recording = false;                    ///< the attempt has a recording.json
  std::vector<PictureFiles> sinks;
  FileSizes whole;         ///< of sinks with files for the whole output
  std::string whole_name;  ///< of these sinks: "coco"
  FileSizes reduced;
  std::map<std::string, std::int64_t> views;  ///< pictures by view
  std::int64_t folders = 0;                   ///< all except those in PictureFiles
};

/// Reads the output folder of a finished run whose plan has one segment or more.
/// Throws StorageError or std::filesystem::filesystem_error.
SampleFiles read_sample(const std::string& output);

}  // namespace millrace
