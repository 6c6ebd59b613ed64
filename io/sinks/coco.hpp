#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

struct CocoOptions {
  /// A file that has as many is closed, and the next picture begins another. COCO readers load a file whole: 500,000
  /// annotations with masks take a Python reader some gigabytes.
  std::int64_t max_annotations_per_file = 500'000;
};

/// What an export wrote.
struct CocoExport {
  std::vector<std::string> files;
  std::int64_t images = 0, annotations = 0;
  std::int64_t failed = 0;  ///< pictures left out because they failed
};

/// Exports all committed segments of an output folder as COCO JSON to `file` ("x/coco.json"), or to x/coco-00001.json,
/// -00002, ... when there are more annotations than one file may hold. Memory does not grow with the collection, and
/// the bytes depend on the segment lines and the options alone. docs/formats.md describes the files. In short:
/// - image ids are item ids; annotation ids count from 1 over all files; the annotations of a picture are in the file
/// of its image;
/// - failed pictures are left out and counted in "info";
/// - categories are the names that occur, merged over all models; their id is the class number of the first object of
/// that name plus
///   one where that is free, else the next above all others. Every file has all of them.
/// Files are written aside, synced and renamed when all are complete; those of an earlier export to the same `file`
/// that this one did not write are removed. Throws StorageError, and std::runtime_error for a line that cannot be read.
CocoExport export_coco(const std::string& out_folder, const std::string& file, const CocoOptions& options = {});

}  // namespace millrace
