#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/package.hpp"
#include "models/precision.hpp"

namespace millrace {

/// A variant cannot be used. The message names file and key, and what to do.
struct VariantError : PackageError {
  using PackageError::PackageError;
};

/// Machine code of one method for calls with exactly this number of rows.
struct CompiledCall {
  int rows = 1;
  std::filesystem::path library;
  std::string sha256;
  std::int64_t bytes = 0;  ///< of the library; see check_libraries()
};

/// A variant of a package: methods that `millrace compile` turned into machine code for one kind of machine.
/// A folder with variant.yaml and one library for each call. docs/packages.md describes the keys.
struct Variant {
  std::filesystem::path folder;
  std::string fingerprint;  ///< SHA-256 of variant.yaml, which has the hashes of the libraries
  std::string package;      ///< fingerprint of the package
  std::string machine;      ///< "cpu" and a CPU level (engines/cpu_level.hpp), or "cuda" and a capability: "cuda sm_90"
  std::vector<std::string> cpu_flags;  ///< as in /proc/cpuinfo; the CPU must have all of them
  Precision precision = Precision::fp32;
  std::string torch;   ///< version of LibTorch, such as "2.11.0"
  bool gated = false;  ///< its results were compared with those of TorchScript, and are within the limits
  std::map<std::string, std::vector<CompiledCall>, std::less<>> methods;  ///< smallest number of rows first

  /// "cpu-avx512-fp32 0123456789abcdef": the folder's name and the first digits of the fingerprint. For plan and report.
  std::string id() const;
};

/// The machine and the settings of a run, which decide whether a variant fits.
struct VariantNeeds {
  std::string machine;                 ///< as in Variant
  std::vector<std::string> cpu_flags;  ///< of this CPU
  Precision precision = Precision::fp32;
};

/// Names that `file` (/proc/cpuinfo) lists as flags of the first CPU. Empty if it cannot be read.
std::vector<std::string> cpu_flags(const std::filesystem::path& file = "/proc/cpuinfo");

/// Where variants of a package may be: PACKAGE.variants next to it, then the user's cache.
std::vector<std::filesystem::path> variant_places(const Package& package);

/// Reads `folder`/variant.yaml and checks that its calls are calls of `package`. Does not read the libraries.
/// Throws VariantError.
Variant read_variant(const std::filesystem::path& folder, const Package& package);

/// Checks the hash of each library and sets CompiledCall::bytes. Call it before a library is opened.
/// Throws VariantError.
void check_libraries(Variant& variant);

/// Bytes of the files that a run with this package loads: those of the package and the libraries of its variant.
/// Without model.ts, if the variant has all methods.
std::int64_t loaded_bytes(const Package& package);

/// Why the variant does not fit the needs, for messages: "it is for cpu avx512". Nothing if it fits.
std::optional<std::string> misfit(const Variant& variant, const VariantNeeds& needs);

/// Folders with a variant.yaml in these places: those of the first place first, sorted by name.
std::vector<std::filesystem::path> variant_folders(const std::vector<std::filesystem::path>& places);

}  // namespace millrace
