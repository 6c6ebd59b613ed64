#include "models/sniff.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>
#include <system_error>
#include <vector>

namespace millrace {
namespace {

using namespace std::literals;

std::string read_at(std::ifstream& stream, std::uint64_t offset, std::size_t count) {
  std::string bytes(count, '\0');
  // An earlier read may have reached the end of the file.
  stream.clear();
  stream.seekg(static_cast<std::streamoff>(offset));
  stream.read(bytes.data(), static_cast<std::streamsize>(count));
  bytes.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, stream.gcount())));
  return bytes;
}

// A little-endian number. The caller has checked that `bytes` is long enough.
template <class T>
T number_at(std::string_view bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

struct ZipDirectory {
  std::uint64_t offset = 0, bytes = 0;
};

// Finds the directory by the end record of a zip or zip64 (APPNOTE.TXT 4.3.14 to 4.3.16). PyTorch always writes zip64.
std::optional<ZipDirectory> find_directory(std::ifstream& stream, std::uint64_t size) {
  constexpr std::size_t end_bytes = 22, locator_bytes = 20, end64_bytes = 56;
  // A comment of at most 65,535 bytes may follow the end record.
  const std::uint64_t tail_bytes = std::min<std::uint64_t>(size, end_bytes + 65535);
  const std::string tail = read_at(stream, size - tail_bytes, static_cast<std::size_t>(tail_bytes));
  const std::size_t end = tail.rfind("PK\x05\x06"sv);
  if (end == std::string::npos || tail.size() - end < end_bytes) return std::nullopt;
  ZipDirectory directory{number_at<std::uint32_t>(tail, end + 16), number_at<std::uint32_t>(tail, end + 12)};
  if (end >= locator_bytes && tail.compare(end - locator_bytes, 4, "PK\x06\x07"sv) == 0) {
    const auto record = number_at<std::uint64_t>(tail, end - locator_bytes + 8);
    if (record >= size) return std::nullopt;
    const std::string end64 = read_at(stream, record, end64_bytes);
    if (end64.size() < end64_bytes || !end64.starts_with("PK\x06\x06"sv)) return std::nullopt;
    directory = {number_at<std::uint64_t>(end64, 48), number_at<std::uint64_t>(end64, 40)};
  }
  // The numbers may be hostile. The difference cannot overflow, because the offset is checked first.
  if (directory.offset > size || directory.bytes > size - directory.offset) return std::nullopt;
  return directory;
}

// Names of the archive's files.
// The directory may be hostile: reads at most 16 MB of it and stops at the first invalid entry.
std::vector<std::string> names_in(std::ifstream& stream, const ZipDirectory& where) {
  constexpr std::size_t entry_bytes = 46;
  const std::string directory =
      read_at(stream, where.offset, static_cast<std::size_t>(std::min<std::uint64_t>(where.bytes, 16U << 20)));
  std::vector<std::string> names;
  std::size_t at = 0;
  while (directory.size() - at >= entry_bytes && directory.compare(at, 4, "PK\x01\x02"sv) == 0) {
    const std::size_t name = number_at<std::uint16_t>(directory, at + 28);
    const std::size_t extra = number_at<std::uint16_t>(directory, at + 30);
    const std::size_t comment = number_at<std::uint16_t>(directory, at + 32);
    if (directory.size() - at < entry_bytes + name + extra + comment) break;
    names.push_back(directory.substr(at + entry_bytes, name));
    at += entry_bytes + name + extra + comment;
  }
  return names;
}

FileKind kind_of_zip(std::ifstream& stream, std::uint64_t size) {
  const auto directory = find_directory(stream, size);
  if (!directory) return FileKind::broken_zip;
  const auto names = names_in(stream, *directory);
  const auto any = [&](auto&& matches) { return std::any_of(names.begin(), names.end(), matches); };
  // PyTorch puts all files into one folder, which has the archive's name.
  const auto inside = [](const std::string& name) {
    return std::string_view(name).substr(std::min(name.size(), name.find('/') + 1));
  };
  // Before data.pkl, which TorchScript archives contain too.
  if (any([&](const std::string& name) { return inside(name).starts_with("code/"); })) return FileKind::torchscript;
  if (any([&](const std::string& name) {
        return inside(name).starts_with("archive_format") || inside(name).starts_with("models/") ||
               inside(name).starts_with("serialized_exported_program");
      }))
    return FileKind::exported_program;
  if (any([&](const std::string& name) { return inside(name) == "data.pkl"; })) return FileKind::pickle_checkpoint;
  return FileKind::other_zip;
}

bool looks_like_html(std::string_view head) {
  std::string start(head.substr(0, 512));
  std::transform(start.begin(), start.end(), start.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const std::size_t first = start.find_first_not_of("\xef\xbb\xbf \t\r\n");
  if (first == std::string::npos) return false;
  const std::string_view text = std::string_view(start).substr(first);
  return text.starts_with("<!doctype html") || text.starts_with("<html") || text.starts_with("<head") ||
         (text.starts_with("<?xml") && text.find("<html") != std::string_view::npos);
}

// In protobuf, a ModelProto begins with field 1: ir_version, a small varint.
// Then one of its first string or message fields follows.
bool looks_like_onnx(std::string_view head) {
  return head.size() > 4 && head[0] == 0x08 && head[1] > 0 && head[1] < 32 &&
         (head[2] == 0x12 || head[2] == 0x1a || head[2] == 0x22 || head[2] == 0x3a || head[2] == 0x42);
}

bool looks_like_safetensors(std::string_view head, std::uint64_t size) {
  // The file begins with the length of its header, in 8 bytes, then the header in JSON.
  if (head.size() < 10 || head[8] != '{') return false;
  const auto header = number_at<std::uint64_t>(head, 0);
  return header >= 2 && header <= size - 8;
}

}  // namespace

FileKind sniff(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::system_error(errno, std::generic_category(), file.string());
  const std::uint64_t size = std::filesystem::file_size(file);
  if (size == 0) return FileKind::empty;
  const std::string head = read_at(stream, 0, std::size_t{64} << 10);
  if (head.starts_with("PK\x03\x04"sv)) return kind_of_zip(stream, size);
  if (head.starts_with("version https://git-lfs.github.com/")) return FileKind::git_lfs_pointer;
  if (looks_like_html(head)) return FileKind::html;
  if (head.starts_with("GGUF")) return FileKind::gguf;
  if (head.starts_with("\x89HDF\r\n"sv)) return FileKind::hdf5;
  if (head.size() > 8 && head.compare(4, 4, "TFL3") == 0) return FileKind::tflite;
  // Ultralytics writes a block of JSON before the engine, so the mark may be anywhere in the first bytes.
  if (head.starts_with("ftrt") || head.starts_with("ptrt") ||
      (head.size() > 5 && head[4] == '{' && head.find("ftrt") != std::string::npos))
    return FileKind::tensorrt;
  // These three tests look at few bytes, so they come after the marks.
  if (looks_like_safetensors(head, size)) return FileKind::safetensors;
  if (head.size() > 2 && head[0] == '\x80' && head[1] >= 2 && head[1] <= 5) return FileKind::legacy_pickle;
  if (looks_like_onnx(head)) return FileKind::onnx;
  return FileKind::unknown;
}

std::string look_of(FileKind kind) {
  switch (kind) {
    case FileKind::torchscript:
      return "a TorchScript model";
    case FileKind::exported_program:
      return "an exported program (.pt2)";
    case FileKind::pickle_checkpoint:
      return "a PyTorch checkpoint (a pickle in a zip)";
    case FileKind::legacy_pickle:
      return "a pickle, as old PyTorch checkpoints are";
    case FileKind::onnx:
      return "an ONNX model";
    case FileKind::tensorrt:
      return "a TensorRT engine";
    case FileKind::safetensors:
      return "safetensors weights";
    case FileKind::gguf:
      return "GGUF weights";
    case FileKind::hdf5:
      return "an HDF5 file, as Keras writes";
    case FileKind::tflite:
      return "a TensorFlow Lite model";
    case FileKind::git_lfs_pointer:
      return "a Git LFS pointer, not the file itself";
    case FileKind::html:
      return "a web page";
    case FileKind::other_zip:
      return "a zip archive without a model in it";
    case FileKind::broken_zip:
      return "a zip archive that is cut off";
    case FileKind::empty:
      return "empty";
    case FileKind::unknown:
      return "of an unknown kind";
  }
  return "of an unknown kind";
}

std::string advice_for(FileKind kind) {
  switch (kind) {
    case FileKind::torchscript:
      return "";
    case FileKind::exported_program:
      return "save the model as TorchScript (torch.jit.trace, then save) and make a package of it";
    case FileKind::pickle_checkpoint:
    case FileKind::legacy_pickle:
      return "it has no graph and could run code, so Millrace never loads it; 'millrace model FILE' "
             "converts YOLO and RT-DETR of Ultralytics, SAM, MobileSAM, SAM 2 and torchvision's classifiers, and "
             "models/export shows how to export others";
    case FileKind::onnx:
      return "'millrace model FILE' converts a YOLO; convert others with onnx2torch and "
             "torch.jit.trace";
    case FileKind::tensorrt:
      return "it fits one GPU and one TensorRT version; export the original model as TorchScript instead";
    case FileKind::safetensors:
    case FileKind::gguf:
      return "it has weights but no graph; load it into the model in Python and export that as TorchScript "
             "(models/export shows how)";
    case FileKind::hdf5:
    case FileKind::tflite:
      return "TensorFlow models are not supported; export a PyTorch version of the model as TorchScript";
    case FileKind::git_lfs_pointer:
      return "run 'git lfs pull' in the repository that it came from";
    case FileKind::html:
      return "the download was probably an error or login page; open the file in a browser, then fetch the model again";
    case FileKind::other_zip:
      return "if a package was zipped, unpack it and name the folder";
    case FileKind::broken_zip:
    case FileKind::empty:
      return "the copy or download was probably interrupted; fetch it again";
    case FileKind::unknown:
      return "a package's model.ts must be a TorchScript file, as torch.jit.save writes";
  }
  return "";
}

}  // namespace millrace
