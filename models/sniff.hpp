#pragma once

#include <filesystem>
#include <string>

namespace millrace {

/// What a file looks like, from its first bytes and, for zip archives, the names in its directory.
enum class FileKind {
  torchscript,        ///< zip with code/: what an engine loads
  exported_program,   ///< zip of torch.export or AOTInductor (.pt2)
  pickle_checkpoint,  ///< zip with data.pkl but no code/, as torch.save writes: weights, or a pickled Python object
  legacy_pickle,      ///< a bare pickle, as torch.save wrote before PyTorch 1.6
  onnx,
  tensorrt,
  safetensors,
  gguf,
  hdf5,  ///< Keras
  tflite,
  git_lfs_pointer,  ///< three lines of text in place of the file
  html,             ///< a web page, often the error page of a failed download
  other_zip,
  broken_zip,  ///< begins as a zip but has no directory at its end: cut off
  empty,
  unknown,
};

/// Looks into a regular file, at most 64 kB at its start and the directory at its end. Nothing is unpickled or run.
/// Throws std::system_error when it cannot be read.
FileKind sniff(const std::filesystem::path& file);

/// For people: what the file is, e.g. "a Git LFS pointer".
std::string look_of(FileKind kind);

/// For people: what to do to get a model that loads; empty for torchscript.
std::string advice_for(FileKind kind);

}  // namespace millrace
