#pragma once

#include <filesystem>
#include <string>

namespace millrace {

/// Writes a TorchScript module with these methods to `file`. It has a parameter `scale` of 2 (`half`: in 16 bits), and a
/// buffer `first`, the whole number 0.
void save_torchscript(const std::filesystem::path& file, const std::string& source, bool half = false);

}  // namespace millrace
