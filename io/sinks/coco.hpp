#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace millrace {

struct CocoOptions {
  /// A picture whose annotations would exceed this begins another file. A file with one picture may exceed it.
  /// COCO readers load a file whole: 500,000 annotations with masks take a Python reader some gigabytes.
  std::int64_t max_annotations_per_file = 500'000;
};

/// What an export wrote.
struct CocoExport {
  std::vector<std::string> files;
  std::int64_t images = 0, annotations = 0;
  std::int64_t failed = 0;  ///< pictures left out because they failed
};

/// Exports all committed segments of an output folder as COCO JSON to `file` ("x/coco.json").
/// If there are more annotations than one file may have, it writes x/coco-00001.json, -00002, ... instead.
/// Memory does not grow with the number of pictures. The bytes depend on the segment lines and the options alone.
/// docs/formats.md describes the files. In short:
/// - Image ids are item ids. Annotation ids count from 1 over all files.
/// - The annotations of a picture are in the file of its image.
/// - Failed pictures are left out and counted in "info".
/// - Categories are the names that occur, merged over all models. Every file has all of them.
/// - The id of a category is the class number of its first object plus 1. If that is taken: the highest id plus 1.
/// Files have temporary names until all are complete; then they are synced and renamed.
/// Files of an earlier export to the same `file` that this one did not write are removed.
/// Throws StorageError, ResultsDamaged, and std::runtime_error for a line that cannot be read.
CocoExport export_coco(const std::string& out_folder, const std::string& file, const CocoOptions& options = {});

}  // namespace millrace
