#pragma once

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "models/package.hpp"
#include "tests/models/package_files.hpp"

namespace millrace {

/// The error of reading the package; "no error" if there is none.
inline std::string error_of(const std::filesystem::path& folder) {
  try {
    read_package(folder);
  } catch (const PackageError& error) {
    return error.what();
  }
  return "no error";
}

/// A mistake in a model.yaml: this text in place of that one, and parts of the message.
struct Wrong {
  std::string from, to;
  std::vector<std::string> says;
};

inline void check_table(const std::string& yaml, const std::vector<Wrong>& table) {
  for (const Wrong& wrong : table) {
    CAPTURE(wrong.to);
    const TemporaryFolder folder;
    write_package(folder.path(), replaced(yaml, wrong.from, wrong.to));
    const std::string error = error_of(folder.path());
    CAPTURE(error);
    CHECK(error.find((folder.path() / "model.yaml").string()) == 0);
    for (const std::string& part : wrong.says) CHECK(error.find(part) != std::string::npos);
  }
}

}  // namespace millrace
