#pragma once

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "io/files/files.hpp"

namespace millrace {

/// A folder that is removed at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "millrace-models-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& file, const std::string& content) {
  std::ofstream(file, std::ios::binary) << content;
}

inline std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

/// A zip archive of empty files, exactly as in APPNOTE.TXT. `zip64` adds the records that PyTorch writes.
inline std::string zip_of(const std::vector<std::string>& names, bool zip64 = false) {
  std::string files, directory;
  for (const std::string& name : names) {
    const std::string offset = little_endian(files.size(), 4);
    const std::string sizes(12, '\0');  // crc, compressed, uncompressed
    files += "PK\x03\x04" + little_endian(20, 2) + std::string(8, '\0') + sizes + little_endian(name.size(), 2) +
             little_endian(0, 2) + name;
    directory += "PK\x01\x02" + little_endian(20, 2) + little_endian(20, 2) + std::string(8, '\0') + sizes +
                 little_endian(name.size(), 2) + std::string(12, '\0') + offset + name;
  }
  const std::string counts = little_endian(names.size(), 2) + little_endian(names.size(), 2);
  std::string end = "PK\x05\x06" + std::string(4, '\0') + counts + little_endian(directory.size(), 4) +
                    little_endian(files.size(), 4) + std::string(2, '\0');
  if (zip64) {
    const std::uint64_t at = files.size() + directory.size();
    const std::string end64 = "PK\x06\x06" + little_endian(44, 8) + std::string(12, '\0') +
                              little_endian(names.size(), 8) + little_endian(names.size(), 8) +
                              little_endian(directory.size(), 8) + little_endian(files.size(), 8);
    end = end64 + "PK\x06\x07" + little_endian(0, 4) + little_endian(at, 8) + little_endian(1, 4) + "PK\x05\x06" +
          std::string(4, '\0') + std::string(4, '\xff') + std::string(8, '\xff') + std::string(2, '\0');
  }
  return files + directory + end;
}

/// The bytes of an archive that looks like TorchScript but cannot be loaded.
inline std::string torchscript_looks() {
  return zip_of({"model/data.pkl", "model/code/__torch__.py", "model/version"}, true);
}

inline const char* detector_yaml() {
  return R"(schema: 1
name: tiny
task: detect
architecture: yolox
input: {width: 32, height: 64, colour: bgr, scale: 1.0, mean: [0, 0, 0], std: [1, 1, 1], resize: letterbox, filter: cv2_linear, rounding: down, padding: top_left, pad: [114, 114, 114]}
output: {layout: end_to_end, boxes: 42}
classes: [cat, dog, "yes"]
max_batch: 1
licence: Apache-2.0
files: {model.ts: HASH}
)";
}

inline const char* segmenter_yaml() {
  return R"(schema: 1
name: tiny-sam
task: segment
architecture: small_sam
input: {width: 256, height: 256, colour: rgb, scale: 1.0, mean: [123.675, 116.28, 103.53], std: [58.395, 57.12, 57.375], resize: longest_side, filter: pil_bilinear_antialias, pad: [123.675, 116.28, 103.53]}
output: {embedding: [32, 16, 16], logits: [64, 64], resize: via_input}
max_batch: 16
max_boxes: 64
licence: Apache-2.0
files: {model.ts: HASH}
)";
}

/// Replaces the first `from` in `text`, which must contain one.
inline std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  if (at == std::string::npos) std::abort();
  return text.replace(at, from.size(), to);
}

/// Writes a package folder; HASH in `yaml` becomes the hash of `model`.
inline void write_package(const std::filesystem::path& folder, const std::string& yaml,
                          const std::string& model = torchscript_looks()) {
  std::filesystem::create_directories(folder);
  write_file(folder / "model.ts", model);
  const bool has_hash = yaml.find("HASH") != std::string::npos;
  write_file(folder / "model.yaml", has_hash ? replaced(yaml, "HASH", sha256_hex(model)) : yaml);
}

}  // namespace millrace
