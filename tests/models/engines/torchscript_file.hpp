#pragma once

#include <filesystem>
#include <string>

namespace millrace {

/// Writes a TorchScript module with these methods, and a parameter `scale` of 2 (`half`: in 16 bits), to `file`.
void save_torchscript(const std::filesystem::path& file, const std::string& source, bool half = false);

}  // namespace millrace
