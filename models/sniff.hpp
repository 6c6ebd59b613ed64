#pragma once

#include <filesystem>
#include <string>

namespace millrace {

/// The kind of a file, by its first bytes and, for zip archives, by the names in its directory.
enum class FileKind {
  torchscript,        ///< zip with code/: the only kind that an engine loads
  exported_program,   ///< zip of torch.export or AOTInductor (.pt2)
  pickle_checkpoint,  ///< zip with data.pkl but no code/, as torch.save writes: weights, or a pickled Python object
  legacy_pickle,      ///< a bare pickle, as torch.save wrote before PyTorch 1.6
  onnx,
  tensorrt,
  safetensors,
  gguf,
  hdf5,  ///< Keras
  tflite,
  git_lfs_pointer,  ///< three lines of text instead of the file
  html,             ///< a web page, often the error page of a failed download
  other_zip,
  broken_zip,  ///< begins like a zip but has no directory at its end: cut off
  empty,
  unknown,
};

/// The kind of a regular file. Reads at most 64 kB at its start and, for a zip, the directory at its end.
/// Unpickles and runs nothing. Throws std::system_error if the file cannot be read.
FileKind sniff(const std::filesystem::path& file);

/// The kind in words for people, e.g. "a Git LFS pointer, not the file itself".
std::string look_of(FileKind kind);

/// Advice for people how to get a model that loads. Empty for torchscript.
std::string advice_for(FileKind kind);

}  // namespace millrace
